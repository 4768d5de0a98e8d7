"""Executes a target many times with drawn inputs, and collects what should not happen.

A target draws its input from a generator of random numbers and calls what it tests. It may return,
or raise one of the documented errors with a sentence. Each execution has a seed of its own, so a
finding is reproduced by its number alone.
"""

import os
import random
import re
import resource
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import final

from holdfast import errors

Target = Callable[[random.Random, Path], None]

LONGEST_SECONDS = 20
"""After this long, an execution counts as hanging."""

MOST_BYTES = 2**30
"""Memory that an execution may take beyond what the process had before the first."""

DOCUMENTED = {ValueError, FileNotFoundError} | {
    kind for kind in vars(errors).values() if isinstance(kind, type)
}

SENTENCE = re.compile(r"(`|At most|Exactly|No such).*", re.DOTALL)
LONGEST_MESSAGE = 4000


class HangError(Exception):
    """An execution took too long."""


@final
@dataclass
class Outcome:
    """The executions of one target."""

    executions: int = 0
    refused: int = 0
    seconds: float = 0.0
    findings: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By their last lines: the number of an execution and its traceback."""


def execute(target: Target, folder: Path, numbers: range, seed: int = 0) -> Outcome:
    """Execute a target once per number, in a folder that it may write to."""
    outcome, started = Outcome(), time.monotonic()
    here = Path.cwd()
    os.chdir(folder)
    try:
        with _memory_limited(), _hanging_found(), warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", "'click", DeprecationWarning)
            for number in numbers:
                chance = random.Random(f"{target.__name__} {seed} {number}")
                _execute_once(target, folder, chance, number, outcome)
    finally:
        os.chdir(here)
    outcome.seconds = time.monotonic() - started
    return outcome


def _execute_once(
    target: Target, folder: Path, chance: random.Random, number: int, outcome: Outcome
) -> None:
    outcome.executions += 1
    try:
        signal.alarm(LONGEST_SECONDS)
        target(chance, folder)
    except Exception as error:
        if is_documented(error):
            outcome.refused += 1
            return
        lines = traceback.format_exc().splitlines()
        place = next((line for line in reversed(lines) if "/holdfast/" in line), "")
        outcome.findings.setdefault(f"{type(error).__name__} {place}", (number, "\n".join(lines)))
    finally:
        signal.alarm(0)


def is_documented(error: Exception) -> bool:
    """Whether the error is of a documented type, and says in a short sentence what is wrong."""
    text = str(error)
    return (
        type(error) in DOCUMENTED
        and len(text) <= LONGEST_MESSAGE
        and SENTENCE.fullmatch(text) is not None
    )


@contextmanager
def _hanging_found() -> Iterator[None]:
    def hang(number: int, frame: FrameType | None) -> None:
        raise HangError(f"no end after {LONGEST_SECONDS} s")

    before = signal.signal(signal.SIGALRM, hang)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _memory_limited() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    held = int(re.findall(r"VmData:\s+(\d+)", Path("/proc/self/status").read_text())[0]) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (held + MOST_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
