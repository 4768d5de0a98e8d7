"""Processes that stay alive for many cases, each of which gets a process group of its own."""

import faulthandler
import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from holdfast.distributed import _roll_call

N_WORKERS = 4

PATIENCE = 30.0
"""Seconds that a case may take."""

TIMEOUT = 15.0
"""Seconds that a collective of a case waits for a rank, unless the case says otherwise."""


@dataclass(frozen=True)
class Failure:
    """What a rank has raised.

    Attributes:
        kind: the class of the exception.
        message: its text.
        trace: where it was raised.
    """

    kind: str
    message: str
    trace: str


class Workers:
    """Runs functions on ranks of gloo.

    Started once. After a case that hangs all processes are killed, and the next case starts new
    ones. They end with this process, because their pipes do.

    Args:
        folder: for the stacks of processes that hang.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._cases = folder, count()
        # The port is the system's choice, and the store is nobody's to lose.
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._context = get_context("forkserver")
        self._context.set_forkserver_preload(["tests.distributed.workers", "holdfast.distributed"])
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []

    def run(
        self, case: Callable[..., Any], *args: Any, n: int = N_WORKERS, timeout: float = TIMEOUT
    ) -> list[Any]:
        """What `case(*args)` returns on each of n ranks; raises if one of them does."""
        found = self.outcomes(case, *args, n=n, timeout=timeout)
        # The first to fail is seldom the one that the others name, so that all are shown.
        failed = [(rank, one) for rank, one in enumerate(found) if isinstance(one, Failure)]
        if failed:
            traces = "\n".join(f"rank {rank}: {one.trace}" for rank, one in failed)
            raise AssertionError(f"{case.__name__} failed:\n{traces}")
        return found

    def outcomes(
        self, case: Callable[..., Any], *args: Any, n: int = N_WORKERS, timeout: float = TIMEOUT
    ) -> list[Any]:
        """The same, with a `Failure` for a rank that raises."""
        if not self._processes:
            self._start()
        prefix = f"case {next(self._cases)}"
        for pipe in self._pipes[:n]:
            pipe.send_bytes(pickle.dumps((case, args, n, timeout, prefix)))
        answers: dict[int, Any] = {}
        deadline = time.monotonic() + PATIENCE
        while len(answers) < n:
            waiting = {self._pipes[rank]: rank for rank in range(n) if rank not in answers}
            ready = connection.wait(list(waiting), max(0.0, deadline - time.monotonic()))
            if not ready:
                stacks = "\n".join(self._stack_file(rank).read_text() for rank in waiting.values())
                self.stop()
                ranks = sorted(waiting.values())
                raise AssertionError(f"{case.__name__} hangs on ranks {ranks}:\n{stacks}")
            for pipe, rank in waiting.items():
                if pipe not in ready:
                    continue
                try:
                    answers[rank] = pickle.loads(pipe.recv_bytes())
                except EOFError:
                    self.stop()
                    raise AssertionError(f"{case.__name__}: rank {rank} has died") from None
        return [answers[rank] for rank in range(n)]

    def stop(self) -> None:
        """Kill all processes."""
        for process in self._processes:
            process.kill()
            process.join()
        for pipe in self._pipes:
            pipe.close()
        self._pipes, self._processes = [], []

    def _start(self) -> None:
        for rank in range(N_WORKERS):
            ours, theirs = self._context.Pipe()
            arguments = (rank, theirs, self._store.port, str(self._stack_file(rank)))
            process = self._context.Process(target=_work, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def _stack_file(self, rank: int) -> Path:
        return self._folder / f"stack-{rank}.txt"


def _work(rank: int, pipe: Connection, port: int, stack_file: str) -> None:
    """Take cases from the pipe until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for pytest, which closes the pipe
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    _roll_call.PATIENCE = 1.0  # all ranks are on this machine
    store = TCPStore("127.0.0.1", port, is_master=False)
    with Path(stack_file).open("w") as stacks:
        while True:
            try:
                case, args, n, timeout, prefix = pickle.loads(pipe.recv_bytes())
            except EOFError:
                return
            faulthandler.dump_traceback_later(PATIENCE - 5, file=stacks)
            dist.init_process_group(
                "gloo",
                store=(case_store := PrefixStore(prefix, store)),
                rank=rank,
                world_size=n,
                timeout=timedelta(seconds=timeout),
            )
            answer = _answer(case, args)
            faulthandler.cancel_dump_traceback_later()
            pipe.send_bytes(pickle.dumps(answer))
            has_failed = isinstance(answer, Failure)
            _leave(case_store, rank, n, timedelta(seconds=0.5 if has_failed else timeout))


def _answer(case: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    try:
        return case(*args)
    except Exception as error:
        return Failure(type(error).__name__, str(error), traceback.format_exc())


def _leave(store: PrefixStore, rank: int, n: int, patience: timedelta) -> None:
    """End the process group once all ranks are done, or after a while.

    Gloo may abort a process whose peer leaves early. A rank that has failed does leave, and closes
    its connections, which ends the waiting of the others.
    """
    store.set(f"done/{rank}", "")
    with suppress(RuntimeError):
        store.wait([f"done/{other}" for other in range(n)], patience)
    dist.destroy_process_group()
