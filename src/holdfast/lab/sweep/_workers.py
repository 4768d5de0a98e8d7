"""The processes of a sweep."""

import contextlib
import multiprocessing
import signal
import sys
from collections.abc import Iterator, Mapping
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import TracebackType
from typing import Any, Self, final

from holdfast.lab.sweep._worker import work

PATIENCE = 0.2
"""Seconds to wait for news before whoever iterates may look around."""


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """A process that is started within does not hear SIGINT and SIGTERM, from its first moment on; this one hears them afterwards.

    Ctrl-C reaches every process of a terminal, and a service manager's wish to end every process of a service. The sweep hears it and says what to do; if the
    sweep itself is gone, its pipe tells.
    """
    if sys.platform == "win32":  # where processes do not inherit what is blocked
        yield
        return
    resource_tracker.ensure_running()  # started within, it would let the signals through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@final
class Workers:
    """Processes that make runs side by side; one that dies is replaced.

    Args:
        n: how many.
        n_threads: that each of them computes with.
    """

    def __init__(self, n: int, n_threads: int) -> None:
        self._n_threads = n_threads
        self._context = multiprocessing.get_context(
            "spawn"
        )  # torch's threads do not survive a fork
        self._busy: set[int] = set()
        self._is_stopping = False
        self._processes: list[tuple[SpawnProcess, Connection]] = []
        try:
            for _ in range(n):
                self._processes.append(self._start())
        except BaseException:  # a signal that was held back
            self.__exit__(None, None, None)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, (process, pipe) in enumerate(self._processes):
            if number in self._busy:
                process.kill()
            pipe.close()
        for process, _ in self._processes:
            process.join()

    @property
    def idle(self) -> list[int]:
        """The workers with nothing to do."""
        return [number for number in range(len(self._processes)) if number not in self._busy]

    def give(self, worker: int, job: Mapping[str, Any]) -> None:
        """Let an idle worker make a run."""
        self._busy.add(worker)
        with contextlib.suppress(OSError):  # if it died while idle, `news` tells
            self._processes[worker][1].send(job)

    def stop(self) -> None:
        """Ask all to stop after the step they are at; none is replaced from now on."""
        self._is_stopping = True
        for number in sorted(self._busy):
            with contextlib.suppress(OSError):
                self._processes[number][1].send(None)

    def news(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """What the workers have told since the last call; waits a little for it."""
        pipes = {self._processes[number][1]: number for number in self._busy}
        for pipe in wait(list(pipes), PATIENCE):
            assert isinstance(pipe, Connection)
            number = pipes[pipe]
            try:
                message: dict[str, Any] = pipe.recv()
            except (EOFError, OSError):
                message = {"failed": self._obituary(number)}
                if not self._is_stopping:
                    self._processes[number] = self._start()
            if "entry" not in message:
                self._busy.discard(number)
            yield number, message

    def _start(self) -> tuple[SpawnProcess, Connection]:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=work, args=(theirs, self._n_threads), daemon=True)
        try:
            with _deaf():
                process.start()
        except BaseException:
            ours.close()  # whereupon the worker ends, if there is one
            raise
        finally:
            theirs.close()  # so that the worker's end is the only one, and its death is seen
        return process, ours

    def _obituary(self, number: int) -> str:
        process, pipe = self._processes[number]
        pipe.close()
        process.join()
        code = process.exitcode or 0
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"The process that made the run {how}."
