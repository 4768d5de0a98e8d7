"""The process of one run."""

import contextlib
import json
import multiprocessing
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any, final

import torch

from holdfast.lab.records import METRICS_FILE
from holdfast.lab.sweep._plan import PlannedRun
from holdfast.lab.training import run

if sys.platform == "win32":
    CONTEXT = multiprocessing.get_context("spawn")
else:
    # Forking this process would copy torch's thread pools without their threads. The fork server
    # only imports torch and never computes; forking it is safe and takes milliseconds.
    CONTEXT = multiprocessing.get_context("forkserver")
    # An optimizer imports torch._dynamo when it is made, which takes longer than all the rest.
    CONTEXT.set_forkserver_preload(["holdfast.lab.training", "torch._dynamo"])


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """Delay SIGINT and SIGTERM until the end of the block; processes started in it ignore them.

    Ctrl-C reaches all processes of a terminal, but only the sweep may decide what to do.
    """
    if sys.platform == "win32":  # has no signal masks
        yield
        return
    resource_tracker.ensure_running()  # in the block, its start would unblock the signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@final
class RunProcess:
    """A process that trains one run, from now on.

    It sends two messages: at the start, the number of steps that the run has made already; at the
    end, the exception with which the run failed, or None. Everything else is in the run's record.

    Args:
        planned: the run.
        stop: a pipe; when the other end closes, by this process or by its death, the run stops
            after its current step with a checkpoint.
        n_threads: torch's number of threads.
        options: further arguments of :func:`run`.
    """

    def __init__(
        self, planned: PlannedRun, stop: Connection, n_threads: int, options: Mapping[str, Any]
    ) -> None:
        self.messages, sender = CONTEXT.Pipe(duplex=False)
        self.is_over = False
        self.error: Exception | None = None
        self._metrics, self._n_old, self._n_bytes = planned.folder / METRICS_FILE, -1, 0
        # The fork server has the environment of the moment when it was started.
        arguments = (planned, stop, n_threads, options, dict(os.environ), sender)
        self._process = CONTEXT.Process(target=_train, args=arguments)
        try:
            self._process.start()
        finally:
            sender.close()  # so that the pipe closes with the process

    def receive(self) -> None:
        """Wait for a message, or for the death of the process."""
        try:
            message = self.messages.recv()
        except (EOFError, OSError):
            self._process.join()
            message = ChildProcessError(exit_reason(self._process.exitcode or 0))
        if isinstance(message, int):
            self._n_old = message
        else:
            self.is_over, self.error = True, message
            self.close()

    def new_entries(self) -> list[dict[str, Any]]:
        """Entries that the run has added to its record since the last call."""
        # Before the first message, the record may end with entries that the run drops and repeats.
        if self._n_old < 0:
            return []
        content = b""
        # A run that fails in its first step removes its record.
        with contextlib.suppress(FileNotFoundError), self._metrics.open("rb") as file:
            file.seek(self._n_bytes)
            content = file.read()
        content = content[: content.rfind(b"\n") + 1]  # the last line may be incomplete
        entries = [json.loads(line) for line in content.splitlines()[self._n_old :]]
        self._n_old, self._n_bytes = 0, self._n_bytes + len(content)
        return [entry for entry in entries if "end" not in entry]

    def close(self) -> None:
        """Kill the process, unless it has ended."""
        if not self.is_over:
            self._process.kill()
        self._process.join()
        self.messages.close()


def exit_reason(code: int) -> str:
    """How a process ended that sent no result."""
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return f"The process of the run {how}."


def reason_of(error: Exception) -> str:
    """The error in one line."""
    kind = "" if isinstance(error, (OSError, ValueError)) else f"{type(error).__name__}: "
    return " ".join(f"{kind}{error}".split())


def _train(
    planned: PlannedRun,
    stop: Connection,
    n_threads: int,
    options: Mapping[str, Any],
    environment: Mapping[str, str],
    messages: Connection,
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(n_threads)
    with contextlib.suppress(BrokenPipeError):  # the sweep was killed
        try:
            run(planned.config, planned.folder, stop=stop.poll, on_start=messages.send, **options)
        except Exception as error:  # of any kind: the other runs continue
            messages.send(_picklable(error))
        else:
            messages.send(None)


def _picklable(error: Exception) -> Exception:
    """The error with its traceback as a note, or another one with the same reason."""
    error.add_note(traceback.format_exc())
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(reason_of(error))
    return error
