"""Training of many runs, side by side."""

import os
from collections import deque
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Any, final

import torch

from holdfast.lab.config import hash_of
from holdfast.lab.records import read_record
from holdfast.lab.sweep._cores import threads_each
from holdfast.lab.sweep._observer import SweepObserver
from holdfast.lab.sweep._plan import PlannedRun, has_ended
from holdfast.lab.sweep._process import CONTEXT, RunProcess, reason_of, signals_blocked

POLL_SECONDS = 0.2
"""Between two looks at the records of active runs and at `stop`."""


@final
@dataclass
class SweepResult:
    """Result of a sweep.

    Args:
        n_runs: number of runs in the plan.
        n_ended: number of runs that have ended, before or in this sweep.
        failures: a line for each run that failed.
        errors: the exceptions of the runs that failed, in the order of `failures`.
        was_stopped: whether `stop` ended the sweep.
    """

    n_runs: int = 0
    n_ended: int = 0
    failures: list[str] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    was_stopped: bool = False

    def add_failure(self, name: str, error: Exception) -> None:
        """Note that the run or measurement of this name failed."""
        self.failures.append(f"{name}: {reason_of(error)}")
        self.errors.append(error)


def sweep(
    runs: Sequence[PlannedRun],
    observer: SweepObserver,
    *,
    n_workers: int,
    known: Container[str] = frozenset(),
    data_dir: str | os.PathLike[str] | None = None,
    device: torch.device | str = "cpu",
    n_threads: int | None = None,
    checkpoint_seconds: float = 30.0,
    tensorboard: bool = False,
    stop: Callable[[], bool] = lambda: False,
    command: Sequence[str] = (),
) -> SweepResult:
    """Train all runs that have not ended yet, each in a process of its own.

    Runs that were stopped or killed are resumed after their last checkpoint. If a run fails, the
    others continue. If this process is killed, its runs stop after their current step with a
    checkpoint, and another sweep resumes them.

    Args:
        runs: the runs, in the order in which they are started.
        observer: receives the progress events.
        n_workers: largest number of runs at the same time.
        known: hashes of runs that ended elsewhere and are skipped.
        data_dir: another folder in which to look for data sets.
        device: the device that trains.
        n_threads: torch's number of threads in each run; by default the cores are shared equally,
            with at most the number of threads of this process.
        checkpoint_seconds: time between checkpoints of a run.
        tensorboard: whether to write TensorBoard files into the folders of the runs.
        stop: called several times per second; once it returns True, all runs stop after their
            current step with a checkpoint.
        command: the command line, for the records.
    """
    result = SweepResult(n_runs=len(runs))
    observer.planned(runs)
    waiting: deque[PlannedRun] = deque()
    for run in runs:
        if hash_of(run.config) in known or has_ended(run.folder):
            result.n_ended += 1
            observer.known(run)
        else:
            waiting.append(run)
    options = {
        "data_dir": None if data_dir is None else os.fspath(data_dir),
        "device": str(device),
        "checkpoint_seconds": checkpoint_seconds,
        "command": list(command),
    }
    # However few runs are left: another number of threads would round differently.
    n_threads = threads_each(n_workers) if n_threads is None else n_threads
    start = {"n_threads": n_threads, "tensorboard": tensorboard, "options": options}
    _train(waiting, observer, n_workers, start, stop, result)
    return result


def _train(
    waiting: deque[PlannedRun],
    observer: SweepObserver,
    n_workers: int,
    start: dict[str, Any],
    stop: Callable[[], bool],
    result: SweepResult,
) -> None:
    active: dict[PlannedRun, RunProcess] = {}
    stop_receiver, stop_sender = CONTEXT.Pipe(duplex=False)
    try:
        while waiting or active:
            if not result.was_stopped and stop():
                result.was_stopped = True
                waiting.clear()
                stop_sender.close()
            while waiting and len(active) < n_workers:
                run = waiting.popleft()
                observer.began(run)
                with signals_blocked():  # until the process is in `active`
                    active[run] = RunProcess(run, stop_receiver, **start)
            ready = wait([process.messages for process in active.values()], POLL_SECONDS)
            for run, process in list(active.items()):
                if process.messages in ready:
                    process.receive()
                for entry in process.new_entries():
                    observer.stepped(run, entry)
                if process.is_over:
                    del active[run]
                    _report(run, process.error, observer, result)
    finally:
        for process in active.values():
            process.kill()
        stop_sender.close()
        stop_receiver.close()


def _report(
    run: PlannedRun, error: Exception | None, observer: SweepObserver, result: SweepResult
) -> None:
    if error is not None:
        result.add_failure(run.folder.name, error)
        observer.failed(run, reason_of(error))
        return
    record = read_record(run.folder)
    result.n_ended += record.end is not None
    observer.ended(run, record)
