"""Training of many runs, side by side, with progress events."""

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Any, final

import torch

from holdfast.lab.config import hash_of
from holdfast.lab.records import Record, read_record
from holdfast.lab.sweep._cores import threads_each
from holdfast.lab.sweep._plan import PlannedRun
from holdfast.lab.sweep._process import CONTEXT, RunProcess, reason_of, signals_blocked

POLL_SECONDS = 0.2
"""Time between two checks of `stop` and of the active runs' records."""


class SweepObserver(ABC):
    """Receives the progress events of a sweep, in the process that called it."""

    @abstractmethod
    def planned(self, runs: Sequence[PlannedRun]) -> None:
        """The sweep starts with these runs."""

    @abstractmethod
    def known(self, run: PlannedRun) -> None:
        """The run had ended before, in its folder or elsewhere, and is skipped."""

    @abstractmethod
    def began(self, run: PlannedRun) -> None:
        """A process starts the run, or resumes it after its last checkpoint."""

    @abstractmethod
    def stepped(self, run: PlannedRun, entry: Mapping[str, Any]) -> None:
        """The run wrote this entry to its record; entries come in order, with a short delay."""

    @abstractmethod
    def ended(self, run: PlannedRun, record: Record) -> None:
        """The run finished, diverged, or stopped on request (`record.end` is None)."""

    @abstractmethod
    def failed(self, run: PlannedRun, reason: str) -> None:
        """The run failed for this reason, a single line; the other runs continue."""


@final
@dataclass
class SweepResult:
    """Result of a sweep.

    Args:
        n_runs: number of runs.
        n_ended: number of runs that have ended, in this sweep or before.
        failures: one line per run that failed.
        errors: the exceptions of these runs.
        was_stopped: whether `stop` ended the sweep.
    """

    n_runs: int = 0
    n_ended: int = 0
    failures: list[str] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    was_stopped: bool = False

    def add_failure(self, name: str, error: Exception) -> str:
        """Add the failure of the run of this name, and return its reason."""
        self.failures.append(f"{name}: {reason_of(error)}")
        self.errors.append(error)
        return reason_of(error)


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
    """Train all runs that have not ended, each in a process of its own.

    A run that was stopped or killed is resumed after its last checkpoint. If a run fails, the
    others continue. If this process is killed, its runs stop after their current step with a
    checkpoint, and another sweep resumes them.

    Args:
        runs: the runs, in the order in which they start.
        observer: receives the progress events.
        n_workers: number of runs at the same time.
        known: hashes of runs that ended elsewhere and are skipped.
        data_dir: another folder to search for data sets.
        device: where to compute.
        n_threads: torch's number of threads in each run; by default its share of the cores, and at
            most the number of threads of this process.
        checkpoint_seconds: time between checkpoints.
        tensorboard: whether to write TensorBoard files into the runs' folders.
        stop: called a few times per second; when it returns True, all runs stop after their
            current step with a checkpoint.
        command: the command line, for the records.
    """
    observer.planned(runs)
    waiting = deque(_runs_left(runs, known, observer))
    result = SweepResult(n_runs=len(runs), n_ended=len(runs) - len(waiting))
    # However few runs are left: another number of threads would round differently.
    n_threads = threads_each(n_workers) if n_threads is None else n_threads
    options = {
        "data_dir": None if data_dir is None else os.fspath(data_dir),
        "device": str(device),
        "checkpoint_seconds": checkpoint_seconds,
        "tensorboard": tensorboard,
        "command": list(command),
    }
    active: dict[PlannedRun, RunProcess] = {}
    stop_receiver, stop_sender = CONTEXT.Pipe(duplex=False)
    try:
        while waiting or active:
            if not result.was_stopped and stop():
                result.was_stopped = True
                waiting.clear()
                stop_sender.close()
            while waiting and len(active) < n_workers:
                observer.began(run := waiting.popleft())
                with signals_blocked():  # until `active` has the process
                    active[run] = RunProcess(run, stop_receiver, n_threads, options)
            _take_news(active, observer, result)
    finally:
        for process in active.values():
            process.close()
        stop_sender.close()
        stop_receiver.close()
    return result


def _runs_left(
    runs: Sequence[PlannedRun], known: Container[str], observer: SweepObserver
) -> list[PlannedRun]:
    """The runs that have not ended; the others are reported as known."""
    left = []
    for run in runs:
        if hash_of(run.config) in known or run.has_ended:
            observer.known(run)
        else:
            left.append(run)
    return left


def _take_news(
    active: dict[PlannedRun, RunProcess], observer: SweepObserver, result: SweepResult
) -> None:
    """Report what the active runs did, and remove those that are over."""
    ready: list[Any] = wait([process.messages for process in active.values()], POLL_SECONDS)
    for run, process in list(active.items()):
        if process.messages in ready:
            process.receive()
        for entry in process.new_entries():
            observer.stepped(run, entry)
        if process.is_over:
            del active[run]
            if process.error is not None:
                observer.failed(run, result.add_failure(run.folder.name, process.error))
            else:
                record = read_record(run.folder)
                result.n_ended += record.end is not None
                observer.ended(run, record)
