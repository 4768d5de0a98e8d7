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
from holdfast.lab.training import TensorBoard, Watcher, run

if sys.platform == "win32":
    CONTEXT = multiprocessing.get_context("spawn")
else:
    # A plain fork would copy torch's thread pools without their threads. The fork server has
    # imported torch but never computed anything, so forking it is safe and takes milliseconds.
    CONTEXT = multiprocessing.get_context("forkserver")
    CONTEXT.set_forkserver_preload(["holdfast.lab.training"])


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back in this process until the end of the block.

    Processes started in the block never receive them. Ctrl-C reaches every process of a terminal,
    and a service manager signals every process of a service: only the sweep shall react to it.
    """
    if sys.platform == "win32":  # has no signal masks
        yield
        return
    resource_tracker.ensure_running()  # unblocks the signals when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@final
class RunProcess:
    """A process that trains one run; it starts at once.

    It sends two messages: the number of its first step after that step, and at the end the
    exception with which the run failed, or None. All else is in the run's record.

    Args:
        run: the run.
        stop: a pipe; when its other end is closed, by this process or by its death, the run stops
            after its current step with a checkpoint.
        n_threads: torch's number of threads.
        tensorboard: whether to write TensorBoard files.
        options: further arguments of :func:`run`.
    """

    def __init__(
        self,
        run: PlannedRun,
        stop: Connection,
        *,
        n_threads: int,
        tensorboard: bool,
        options: Mapping[str, Any],
    ) -> None:
        self.messages, sender = CONTEXT.Pipe(duplex=False)
        self.is_over = False
        self.error: Exception | None = None
        self._metrics = run.folder / METRICS_FILE
        self._n_old: int | None = None
        self._n_bytes = 0
        # The fork server's environment is from the moment when it was started.
        job = (run, dict(os.environ), n_threads, tensorboard, options)
        self._process = CONTEXT.Process(target=_work, args=(*job, stop, sender))
        try:
            self._process.start()
        finally:
            sender.close()  # so that the end of the process closes the pipe

    def receive(self) -> None:
        """Take a message, which must have arrived, or notice that the process has died."""
        try:
            message = self.messages.recv()
        except (EOFError, OSError):
            self._process.join()
            message = ChildProcessError(exit_reason(self._process.exitcode or 0))
        if isinstance(message, int):
            self._n_old = message - 1
        else:
            self.is_over, self.error = True, message
            self._close()

    def new_entries(self) -> list[dict[str, Any]]:
        """Entries that the run has written to its record since the last call."""
        # Before the first step, the record may hold entries that a resumed run makes again.
        if self._n_old is None:
            return []
        with self._metrics.open("rb") as file:
            file.seek(self._n_bytes)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]  # the last line may be incomplete
        self._n_bytes += len(whole)
        entries = [json.loads(line) for line in whole.splitlines()[self._n_old :]]
        self._n_old = 0
        return [entry for entry in entries if "end" not in entry]

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._close()

    def _close(self) -> None:
        self._process.join()
        self.messages.close()


def exit_reason(code: int) -> str:
    """How a process ended that reported no result."""
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return f"The process of the run {how}."


def reason_of(error: Exception) -> str:
    """An error as a single line."""
    kind = "" if isinstance(error, (OSError, ValueError)) else f"{type(error).__name__}: "
    return " ".join(f"{kind}{error}".split())


def _work(
    planned: PlannedRun,
    environment: Mapping[str, str],
    n_threads: int,
    tensorboard: bool,
    options: Mapping[str, Any],
    stop: Connection,
    messages: Connection,
) -> None:
    """Train the run, in its process."""
    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(n_threads)
    error: Exception | None = None
    try:
        _train(planned, tensorboard, options, stop, messages)
    except Exception as raised:  # of any kind: the other runs shall continue
        error = _picklable(raised)
    _send(messages, error)


def _train(
    planned: PlannedRun,
    tensorboard: bool,
    options: Mapping[str, Any],
    stop: Connection,
    messages: Connection,
) -> None:
    has_begun = False

    def report_first_step(entry: Mapping[str, Any]) -> None:
        nonlocal has_begun
        if not has_begun:
            has_begun = True
            _send(messages, entry["step"])

    watchers: list[Watcher] = [report_first_step]
    with contextlib.ExitStack() as stack:
        if tensorboard:
            watchers.append(stack.enter_context(contextlib.closing(TensorBoard(planned.folder))))
        run(planned.config, planned.folder, watchers=watchers, stop=stop.poll, **options)


def _send(messages: Connection, message: object) -> None:
    with contextlib.suppress(OSError):  # the sweep was killed, which `stop` reports
        messages.send(message)


def _picklable(error: Exception) -> Exception:
    """The error with its traceback as a note, or an equivalent if it cannot be sent."""
    error.add_note(traceback.format_exc())
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(reason_of(error))
    return error
