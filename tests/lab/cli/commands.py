"""The command line from within the tests' process, as a process of its own, and in a terminal."""

import fcntl
import json
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
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from holdfast.lab.cli._app import app

PATIENCE = 120.0
"""Seconds after which a process that says nothing has failed; a loaded machine takes ten to import torch."""

SCRIPT = [str(Path(sys.executable).parent / "holdfast")]
WITH_TINY = [sys.executable, "-m", "tests.lab.cli.with_tiny"]
"""The same command with one more data set, `tiny`, that a server on this machine can hold."""

CLEAN = (
    "HOLDFAST_DATA",
    "COLUMNS",
    "LINES",
    "NO_COLOR",
    "FORCE_COLOR",
    "http_proxy",
    "https_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
)

SMALL = ["--model", "logistic-regression", "--rows", "8", "--batch", "2", "--threads", "1"]
"""Options of a run whose steps take a few milliseconds."""


def invoke(*arguments: str, **options: Any) -> Result:
    """The command, without a process of its own."""
    result = CliRunner().invoke(app, list(arguments), prog_name="holdfast", **options)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def assert_refused(result: Result, *words: str, code: int = 2) -> None:
    """The command ended with one sentence on standard error that holds the words."""
    assert result.exit_code == code, result.output
    assert len(re.findall(r"^(?:╭─ Error|Error:)", result.stderr, re.MULTILINE)) == 1, result.output
    assert "Traceback" not in result.output
    flat = " ".join(re.sub(r"[│╭╮╰╯─]", " ", result.stderr).split())
    for word in words:
        assert word in flat


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Of a user who has nothing set, and nothing cached."""
    kept = {name: value for name, value in os.environ.items() if name not in CLEAN}
    own = {
        "OMP_NUM_THREADS": "1",
        "HOLDFAST_COMPILE": "never",
        "XDG_CACHE_HOME": str(folder / "cache"),
        "no_proxy": "*",
    }
    path = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).parents[3]),
    }
    return {**kept, **own, **path, "TERM": "xterm-256color", **more}


@dataclass
class Running:
    """A process whose output goes to files."""

    process: "subprocess.Popen[bytes]"
    folder: Path
    number: int

    @property
    def out(self) -> str:
        return (self.folder / f"out-{self.number}").read_text()

    @property
    def error(self) -> str:
        return (self.folder / f"error-{self.number}").read_text()

    def wait(self) -> int:
        return self.process.wait(PATIENCE)

    def until(self, condition: Callable[[], bool]) -> None:
        """Waits for the condition, which must come true before the process ends."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert self.process.poll() is None, f"ended too early: {self.out}{self.error}"
            assert time.monotonic() < deadline, f"nothing happened: {self.out}{self.error}"
            time.sleep(0.005)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


@contextmanager
def started(
    folder: Path, *arguments: str, command: list[str] | None = None, **options: Any
) -> Iterator[Running]:
    """The command as a process in a folder; what is left of it at the end is killed."""
    number = len(list(folder.glob("out-*")))
    with (
        (folder / f"out-{number}").open("wb") as out,
        (folder / f"error-{number}").open("wb") as error,
    ):
        settings: dict[str, Any] = {
            "env": environment(folder),
            "stdin": subprocess.DEVNULL,
            "stdout": out,
            "stderr": error,
        }
        process = subprocess.Popen(
            [*(command or SCRIPT), *arguments], cwd=folder, **{**settings, **options}
        )
    try:
        yield Running(process, folder, number)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def finished(
    folder: Path, *arguments: str, command: list[str] | None = None, **options: Any
) -> tuple[int, str, str]:
    """The exit code, the output and the errors of the command."""
    with started(folder, *arguments, command=command, **options) as running:
        code = running.wait()
        return code, running.out, running.error


@dataclass
class Terminal:
    """A process in a pseudo-terminal."""

    process: "subprocess.Popen[bytes]"
    handle: int
    raw: bytes = field(default=b"")

    @property
    def text(self) -> str:
        """All that was shown so far, without control sequences."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.raw.decode(errors="replace")).replace(
            "\r", ""
        )

    def until(self, condition: Callable[[], bool]) -> None:
        """Reads until the condition is true, or the process has ended."""
        deadline = time.monotonic() + PATIENCE
        while not condition() and self._read():
            assert time.monotonic() < deadline, f"nothing happened: {self.text}"

    def end(self) -> int:
        self.until(lambda: False)
        return self.process.wait(PATIENCE)

    def type(self, keys: bytes) -> None:
        os.write(self.handle, keys)

    def _read(self) -> bool:
        ready, _, _ = select.select([self.handle], [], [], 0.05)
        if not ready:
            return self.process.poll() is None
        try:
            piece = os.read(self.handle, 1 << 16)
        except OSError:  # the other end is closed
            return False
        self.raw += piece
        return bool(piece)


@contextmanager
def terminal(
    folder: Path,
    *arguments: str,
    columns: int = 100,
    command: list[str] | None = None,
    **variables: str,
) -> Iterator[Terminal]:
    """The command in a terminal of so many columns; typed keys reach it as they would from a keyboard."""
    handle, far = pty.openpty()
    fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))

    def take_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # Ctrl-C then becomes a signal

    process = subprocess.Popen(
        [*(command or SCRIPT), *arguments],
        cwd=folder,
        env=environment(folder, **variables),
        stdin=far,
        stdout=far,
        stderr=far,
        start_new_session=True,
        preexec_fn=take_terminal,
    )
    os.close(far)
    try:
        yield Terminal(process, handle)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(handle)


def n_entries(run: Path) -> int:
    """How many entries the record of a run has by now."""
    path = run / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def timeless(run: Path) -> list[Mapping[str, Any]]:
    """All lines of a record, times apart."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]
