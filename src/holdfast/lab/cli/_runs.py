"""What all commands that train have in common."""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import typer

from holdfast.checks import failure
from holdfast.errors import MissingDataError
from holdfast.lab.cli._board import Board
from holdfast.lab.cli._console import console, error_console, is_live
from holdfast.lab.cli._errors import ExitCode, note
from holdfast.lab.cli._lines import Form, Lines
from holdfast.lab.cli._list import listings
from holdfast.lab.cli._summary import defenseless
from holdfast.lab.data import fetch, locate, locate_own_data
from holdfast.lab.sweep import PlannedRun, SweepResult, sweep

Screen = Board | Lines


def screen_for(*, title: str | None = None, quiet: bool = False, json: bool = False) -> Screen:
    """Return the screen for these options and this output.

    Args:
        title: of a screen for many runs; without it, the screen shows the details of one.
        quiet: show failures only.
        json: show every entry of the record of one run as JSON, and nothing of many.
    """
    if quiet and json:
        raise failure("--quiet", "be given without --json", "both")
    if quiet or json:
        return Lines(Form.JSON if json and title is None else Form.QUIET)
    if is_live():
        return Board(console(), title)
    return Lines(Form.STEPS if title is None else Form.RUNS)


def check_folder(folder: Path) -> None:
    """Refuse a folder that is a file, or would be in one, before anything is printed."""
    there = next((path for path in (folder, *folder.parents) if path.exists()), None)
    if there is not None and not there.is_dir():
        is_it = "a file" if there == folder else f"in {there}, a file"
        raise failure("--folder", "be a folder or a new name", f"{folder}, which is {is_it}")


def note_defenseless(runs: Sequence[PlannedRun], given: Mapping[str, Any]) -> None:
    """Note rules that resist no bad row because there are too few; runs that ended are known."""
    texts = (defenseless(run.config) for run in runs if not run.has_ended)
    for text in dict.fromkeys(texts if not given["quiet"] else ()):
        if text is not None:
            note(text)


def fetch_missing(runs: Sequence[PlannedRun], screen: Screen, given: Mapping[str, Any]) -> None:
    """Fetch the data sets of runs that have not ended, or refuse to start without them."""
    for run in runs:
        if run.config.own_data is not None and not run.has_ended:
            locate_own_data(run.config.own_data, data_dir=given["data_dir"])
    for name in dict.fromkeys(run.config.data for run in runs if run.config.own_data is None):
        if locate(name, data_dir=given["data_dir"]) is not None:
            continue
        if all(run.has_ended for run in runs if run.config.data == name):
            continue
        if given["offline"]:
            raise MissingDataError(
                f"{name} is not on this machine, which --offline requires; "
                f"fetch it by: holdfast data fetch {name}"
            )
        fetch(name, data_dir=given["data_dir"], progress=screen.fetching)


def sweep_runs(
    runs: Sequence[PlannedRun],
    screen: Screen,
    received: list[ExitCode],
    given: Mapping[str, Any],
    **more: Any,
) -> SweepResult:
    """Train runs with the options of a command; `more` are further arguments of `sweep`."""
    listings()  # while torch is loaded anyway, see that the cache of names is up to date
    names = ("data_dir", "checkpoint_seconds", "tensorboard")
    options = {name: given[name] for name in names if name in given}
    options |= {"device": parse_device(given["device"]), "n_threads": given.get("threads")}
    options |= {"n_workers": 1, "command": command_line()}
    return sweep(runs, screen, stop=lambda: bool(received), **options | more)


def command_line() -> list[str]:
    """Return the command as it was typed."""
    # Arguments may be bytes that are not text, such as the name of a folder.
    typed = (os.fsencode(one).decode(errors="backslashreplace") for one in sys.argv[1:])
    return ["holdfast", *typed]


def parse_device(text: str) -> torch.device:
    """Return the device of this name, after a computation on it."""
    try:
        device = torch.device(text)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0][:100]
        raise failure("--device", "be one that this machine has", f"{text} ({reason})") from None
    return device


@contextmanager
def interrupts(hint: Callable[[], str] = str) -> Iterator[list[ExitCode]]:
    """Receive SIGINT and SIGTERM in the block; the second one ends the command.

    Args:
        hint: called at the second signal; its text is printed.

    Yields:
        A list that is empty until the first signal, and then holds its exit code.
    """
    received: list[ExitCode] = []

    def receive(number: int, _: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(ExitCode.TERMINATED if number == signal.SIGTERM else ExitCode.INTERRUPTED)
        message = "\nStopping after this step; repeat to stop at once."
        error_console().print(message, style="yellow")

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, receive) for number in numbers}
    try:
        yield received
    except KeyboardInterrupt:
        error_console().print(f"Stopped.{hint()}", style="yellow", soft_wrap=True)
        raise typer.Exit(received[0] if received else ExitCode.INTERRUPTED) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
