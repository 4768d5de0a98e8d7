"""`holdfast train` and `holdfast resume`."""

import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import typer

from holdfast.checks import check_nonnegative, failure
from holdfast.lab.cli._board import print_lines
from holdfast.lab.cli._config import config_of
from holdfast.lab.cli._console import console, is_live
from holdfast.lab.cli._errors import ExitCode
from holdfast.lab.cli._runs import fetch_missing, interrupts, screen_for, sweep_runs
from holdfast.lab.cli._summary import last_line, outcome, resume_command
from holdfast.lab.config import Config, config_from_json, run_name
from holdfast.lab.records import Record, read_record
from holdfast.lab.sweep import PlannedRun

DEFAULT_STEPS = 300


def train(given: Mapping[str, Any]) -> None:
    """Train the run that options describe."""
    folder = given["folder"]
    if folder is not None and not folder.strip():
        raise failure("--folder", "have a name", repr(folder))
    config = config_of(given, default_steps=DEFAULT_STEPS)
    _train(config, Path("runs", run_name(config)) if folder is None else Path(folder), given)


def resume(given: Mapping[str, Any]) -> None:
    """Resume the run in a folder, by default with the device and threads of its start."""
    record = read_record(given["run"])
    machine = record.run.get("machine", {})
    device = given["device"] or machine.get("device", "cpu")
    threads = given["threads"] or machine.get("threads")
    config = config_from_json(record.config)
    _train(config, given["run"], {**given, "device": device, "threads": threads})


def _train(config: Config, folder: Path, given: Mapping[str, Any]) -> None:
    """Train one run, print its outcome and end with its exit code."""
    check_nonnegative("--checkpoint-seconds", given["checkpoint_seconds"])
    runs = [PlannedRun(config, folder)]
    resume_text = resume_command(folder, data_dir=given["data_dir"])
    received: list[ExitCode] = []
    with closing(screen_for(quiet=given["quiet"], json=given["json"])) as screen:
        if not runs[0].has_ended:
            fetch_missing(runs, screen, given)
            with interrupts(f" To resume: {resume_text}") as received:
                result = sweep_runs(runs, screen, received, given)
            if result.errors:
                raise result.errors[0]
    record = read_record(folder)
    _print_outcome(record, resume_text, quiet=given["quiet"], as_json=given["json"])
    if record.end is None:
        raise typer.Exit(received[0] if received else ExitCode.INTERRUPTED)
    if record.end["end"] == "diverged":
        raise typer.Exit(ExitCode.DIVERGED)


def _print_outcome(record: Record, resume_text: str, *, quiet: bool, as_json: bool) -> None:
    if quiet:
        typer.echo(last_line(record, resume_text))
    elif as_json:
        end = record.end or {"end": "stopped"}
        content = {
            "end": end["end"],
            "reason": end.get("reason"),
            "n_steps": record.n_steps,
            "accuracy": record.accuracy,
            "bad_weight": record.bad_weight,
            "hash": record.hash,
            "folder": str(record.folder),
        }
        typer.echo(json.dumps(content))
    elif is_live():
        print_lines(console(), outcome(record, resume_text))
    else:
        for label, text in outcome(record, resume_text):
            typer.echo(f"{label}: {text}")
