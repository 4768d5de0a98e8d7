"""One run from a command."""

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import torch
import typer

from holdfast.checks import failure
from holdfast.lab.cli._console import error_console
from holdfast.lab.cli._exit_codes import ExitCode
from holdfast.lab.cli._interrupts import Interrupts, interrupts
from holdfast.lab.cli._summary import resume_command
from holdfast.lab.cli.screens import Screen, screen
from holdfast.lab.config import Config
from holdfast.lab.data import fetch, locate
from holdfast.lab.records import Record, is_record, read_record
from holdfast.lab.training import TensorBoard, Watcher, run


def execute(
    config: Config,
    folder: Path,
    *,
    data_dir: Path | None,
    offline: bool,
    device: str,
    threads: int | None,
    checkpoint_seconds: float,
    tensorboard: bool,
    quiet: bool,
    json: bool,
) -> None:
    """Run the configuration on a screen, and end the command with the right exit code."""
    use_threads(threads)
    go_on = resume_command(folder, data_dir=data_dir)
    with screen(quiet=quiet, json=json) as shown:
        if not offline:
            fetch_if_missing(config, data_dir, shown)
        with interrupts() as asked:
            try:
                record = show_run(
                    config,
                    folder,
                    shown,
                    asked,
                    data_dir=data_dir,
                    device=device,
                    checkpoint_seconds=checkpoint_seconds,
                    tensorboard=tensorboard,
                )
            except KeyboardInterrupt:
                shown.close()
                error_console().print(f"Stopped. To go on: {go_on}", style="yellow", soft_wrap=True)
                raise typer.Exit(asked.code or ExitCode.INTERRUPTED) from None
        shown.end(record, go_on)
    if record.end is None:
        raise typer.Exit(asked.code or ExitCode.INTERRUPTED)
    if record.end["end"] == "diverged":
        raise typer.Exit(ExitCode.DIVERGED)


def show_run(
    config: Config,
    folder: Path,
    shown: Screen,
    asked: Interrupts,
    *,
    data_dir: Path | None,
    device: str,
    checkpoint_seconds: float,
    tensorboard: bool = False,
) -> Record:
    """Make the run, or what is missing of it, on the screen."""
    where = parse_device(device)
    known = read_record(folder) if is_record(folder) else None
    if known is None or known.end is None:
        shown.begin(config, folder)
    with ExitStack() as stack:
        watchers: list[Watcher] = [shown.entry]
        if tensorboard:
            writer = TensorBoard(folder)
            stack.callback(writer.close)
            watchers.append(writer)
        return run(
            config,
            folder,
            data_dir=data_dir,
            device=where,
            checkpoint_seconds=checkpoint_seconds,
            watchers=watchers,
            stop=asked.asked,
            command=["holdfast", *map(_shown, sys.argv[1:])],
        )


def _shown(argument: str) -> str:
    """An argument whose bytes may be no text, such as a folder's name, as one."""
    return os.fsencode(argument).decode(errors="backslashreplace")


def fetch_if_missing(config: Config, data_dir: Path | None, shown: Screen) -> None:
    """Get the data set, if it is not on this machine."""
    if locate(config.data, data_dir=data_dir) is None:
        fetch(config.data, data_dir=data_dir, progress=shown.fetching)


def parse_device(text: str) -> torch.device:
    """A device that there is, and that computes."""
    try:
        device = torch.device(text)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise failure(
            "--device",
            "be one that this machine has",
            f"{text} ({str(error).splitlines()[0][:100]})",
        ) from None
    return device


def use_threads(threads: int | None) -> None:
    """Let torch use so many threads on the CPU."""
    if threads is not None:
        torch.set_num_threads(threads)
