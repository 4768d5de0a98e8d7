"""The command line in the process of the tests, forked from a server, and in a terminal.

A forked command behaves like the installed one from `main()` on, but torch is loaded already.
"""

import fcntl
import json
import multiprocessing
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from holdfast.lab.cli import main
from holdfast.lab.cli._app import app

PATIENCE = 300.0
"""Seconds after which a silent process has failed."""

CONTEXT = multiprocessing.get_context("forkserver")
PRELOADED = ["_attack", "_data", "_reproduce", "_train"]

CLEAN = (
    *("HOLDFAST_DATA", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"),
    *("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"),
)

SMALL = ["--model", "logistic-regression", "--rows", "8", "--batch", "2", "--threads", "1"]
"""Options of a run whose steps take a few milliseconds."""


def start_server() -> None:
    """Starts the process from which commands and their runs are forked."""
    modules = [f"holdfast.lab.cli.{name}" for name in PRELOADED]
    CONTEXT.set_forkserver_preload([*modules, "tests.lab.cli.commands", "torch._dynamo"])
    forkserver.ensure_running()


def invoke(*arguments: str, **options: Any) -> Result:
    """Runs the command in this process; only training happens in other ones."""
    result = CliRunner().invoke(app, list(arguments), prog_name="holdfast", **options)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def assert_refused(result: Result, *words: str, code: int = 2) -> None:
    """The command ended with one sentence on standard error that holds the words."""
    assert result.exit_code == code, result.output
    sentences = re.findall(r"^Error:", result.stderr, re.MULTILINE)
    assert len(sentences) == 1, result.output
    assert "Traceback" not in result.output
    flat = " ".join(re.sub(r"[│╭╮╰╯─]", " ", result.stderr).split())
    for word in words:
        assert word in flat


@contextmanager
def case(*words: object) -> Iterator[None]:
    """Names the case of a loop in the message of a failure."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {words}")
        raise


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Variables of a user who has set nothing and cached nothing."""
    kept = {name: value for name, value in os.environ.items() if name not in CLEAN}
    own = {
        "OMP_NUM_THREADS": "1",
        "HOLDFAST_COMPILE": "never",
        "XDG_CACHE_HOME": str(folder / "cache"),
        "no_proxy": "*",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TERM": "xterm-256color",
    }
    return {**kept, **own, **more}


@dataclass(frozen=True)
class Job:
    """What a forked process does.

    Attributes:
        arguments: of the command.
        folder: in which it runs.
        variables: its environment.
        output: file or pipe for standard output; None closes it.
        error: file for standard error.
        terminal: path of a terminal, in place of both.
        mirror: official mirror of one more data set, `tiny`.
    """

    arguments: tuple[str, ...]
    folder: Path
    variables: dict[str, str]
    output: str | None = None
    error: str | None = None
    terminal: str | None = None
    mirror: str | None = None


def work(job: Job) -> None:
    """Runs a command; the body of a forked process."""
    os.setsid()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.chdir(job.folder)
    os.environ.clear()
    os.environ.update(job.variables)
    _open_streams(job)
    # Runs of this process are forked from the server of the tests; Python would start another.
    for where in (forkserver, forkserver._forkserver):
        setattr(where, "ensure_running", lambda: None)  # noqa: B010
    if job.mirror is not None:
        _add_tiny(job.mirror)
    sys.argv = ["holdfast", *job.arguments]
    main()


def _open_streams(job: Job) -> None:
    if job.terminal is not None:
        terminal = os.open(job.terminal, os.O_RDWR)
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)  # Ctrl-C becomes a signal
        handles = [terminal] * 3
    else:
        paths = [job.output or os.devnull, job.error or os.devnull]
        files = [os.open(path, os.O_WRONLY | os.O_APPEND) for path in paths]
        handles = [os.open(os.devnull, os.O_RDONLY), *files]
    for number, handle in enumerate(handles):
        os.dup2(handle, number)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", 1)
    if job.terminal is None and job.output is None:
        sys.stdout = None


def _add_tiny(mirror: str) -> None:
    from holdfast.lab import data
    from holdfast.lab.cli import _config, _data, _summary
    from holdfast.lab.config import _config as config
    from holdfast.lab.data import _data_sets
    from tests.lab.data.tiny import TINY

    known = {**data.data_sets, "tiny": replace(TINY, mirrors=(mirror,))}
    for module in (data, config, _config, _data, _summary, _data_sets):
        module.data_sets = known  # type: ignore[attr-defined]


@dataclass
class Running:
    """A forked command."""

    process: ForkServerProcess
    job: Job

    @property
    def out(self) -> str:
        assert self.job.output is not None
        return Path(self.job.output).read_text()

    @property
    def error(self) -> str:
        assert self.job.error is not None
        return Path(self.job.error).read_text()

    def wait(self) -> int:
        self.process.join(PATIENCE)
        assert self.process.exitcode is not None, f"still runs: {self.out}{self.error}"
        return self.process.exitcode

    def until(self, condition: Callable[[], bool]) -> None:
        """Waits for the condition, which must come true before the process ends."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert self.process.is_alive(), f"ended too early: {self.out}{self.error}"
            assert time.monotonic() < deadline, f"nothing happened: {self.out}{self.error}"
            time.sleep(0.005)

    def send(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)


@contextmanager
def forked(job: Job) -> Iterator[ForkServerProcess]:
    """The process of a job; it is killed at the end, if necessary."""
    process = CONTEXT.Process(target=work, args=(job,))
    process.start()
    try:
        yield process
    finally:
        with suppress(OSError):
            process.kill()
        process.join()


@contextmanager
def started(
    folder: Path, *arguments: str, variables: Mapping[str, str] | None = None, **options: Any
) -> Iterator[Running]:
    """A forked command in a folder, with its output in files."""
    number = len(list(folder.glob("out-*")))
    files = {"output": str(folder / f"out-{number}"), "error": str(folder / f"error-{number}")}
    for name in files.values():
        Path(name).touch()
    job = Job(arguments, folder, environment(folder, **variables or {}), **{**files, **options})
    with forked(job) as process:
        yield Running(process, job)


def finished(folder: Path, *arguments: str, **options: Any) -> tuple[int, str, str]:
    """The exit code, the output and the errors of a forked command."""
    with started(folder, *arguments, **options) as running:
        code = running.wait()
        return code, running.out, running.error


@dataclass
class Terminal:
    """A pseudo-terminal with a process in it."""

    handle: int
    poll: Callable[[], int | None]
    """Returns the exit code of the process, or None before its end."""
    send: Callable[[int], None]
    raw: bytes = field(default=b"")

    @property
    def text(self) -> str:
        """Everything that was shown so far, without control sequences."""
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.raw.decode(errors="replace"))
        return text.replace("\r", "")

    def until(self, condition: Callable[[], bool]) -> None:
        """Reads until the condition is true, or the process has ended."""
        deadline = time.monotonic() + PATIENCE
        while not condition() and self._read():
            assert time.monotonic() < deadline, f"nothing happened: {self.text}"

    def code(self) -> int | None:
        """The exit code, after the end."""
        self.until(lambda: False)
        deadline = time.monotonic() + PATIENCE
        while self.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        return self.poll()

    def type(self, keys: bytes) -> None:
        os.write(self.handle, keys)

    def _read(self) -> bool:
        has_ended = self.poll() is not None
        ready, _, _ = select.select([self.handle], [], [], 0.05)
        if not ready:
            return not has_ended
        try:
            piece = os.read(self.handle, 1 << 16)
        except OSError:  # the other end is closed
            return False
        self.raw += piece
        return bool(piece)


@contextmanager
def _open_terminal(columns: int) -> Iterator[tuple[int, int]]:
    """Both ends of a pseudo-terminal of this width."""
    handle, far = pty.openpty()
    fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    try:
        yield handle, far
    finally:
        os.close(handle)
        with suppress(OSError):
            os.close(far)


@contextmanager
def terminal(
    folder: Path, *arguments: str, columns: int = 100, mirror: str | None = None, **variables: str
) -> Iterator[Terminal]:
    """A forked command in a terminal; typed keys reach it as they would from a keyboard."""
    with _open_terminal(columns) as (handle, far):
        names = environment(folder, **variables)
        job = Job(arguments, folder, names, terminal=os.ttyname(far), mirror=mirror)
        with forked(job) as process:
            running = Running(process, job)
            yield Terminal(handle, lambda: process.exitcode, running.send)


@contextmanager
def installed_in_terminal(folder: Path, *arguments: str, columns: int = 100) -> Iterator[Terminal]:
    """The installed command, really started, in a terminal."""

    def take_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    with _open_terminal(columns) as (handle, far):
        process = subprocess.Popen(
            [str(Path(sys.executable).parent / "holdfast"), *arguments],
            cwd=folder,
            env=environment(folder),
            stdin=far,
            stdout=far,
            stderr=far,
            start_new_session=True,
            preexec_fn=take_terminal,
        )
        try:
            yield Terminal(handle, process.poll, process.send_signal)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


def n_entries(run: Path) -> int:
    """How many entries the record of a run has by now."""
    path = run / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def timeless(run: Path) -> list[Mapping[str, Any]]:
    """All lines of a record without times."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]
