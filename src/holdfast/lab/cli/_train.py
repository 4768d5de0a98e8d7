"""`holdfast train` and `holdfast resume`."""

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.checks import check_nonnegative, failure
from holdfast.lab.cli._board import print_lines
from holdfast.lab.cli._config import check_model, check_same_options, config_of
from holdfast.lab.cli._console import console, is_live
from holdfast.lab.cli._defaults import DEFAULT_STEPS
from holdfast.lab.cli._errors import ExitCode
from holdfast.lab.cli._launch import is_launched
from holdfast.lab.cli._runs import (
    check_folder,
    fetch_missing,
    interrupts,
    note_defenseless,
    screen_for,
    sweep_runs,
)
from holdfast.lab.cli._summary import last_line, outcome, resume_command
from holdfast.lab.config import Config, config_from_json, run_name
from holdfast.lab.records import Record, is_record, read_record
from holdfast.lab.sweep import PlannedRun
from holdfast.lab.training import CHECKPOINT_FILE, check_tensorboard, read_own

if TYPE_CHECKING:
    from holdfast.distributed import Ranks


def train(given: Mapping[str, Any]) -> None:
    """Train the run that options describe."""
    folder = given["folder"]
    if folder is not None and not folder.strip():
        raise failure("--folder", "have a name", repr(folder))
    config = config_of(given, default_steps=DEFAULT_STEPS)
    path = Path("runs", run_name(config)) if folder is None else Path(folder)
    if not is_launched():
        _train(config, path, given)
        return
    from holdfast.lab.cli._ranks import join_ranks

    _check_output(given)
    with closing(join_ranks(given, config)) as ranks:
        _train_on_ranks(config, path, given, ranks)


def resume(given: Mapping[str, Any]) -> None:
    """Resume the run in a folder, by default with the device and threads of its start."""
    if is_launched():
        _resume_on_ranks(given)
        return
    record = read_record(given["run"])
    machine = record.run.get("machine", {})
    device = given["device"] or machine.get("device", "cpu")
    threads = given["threads"] or machine.get("threads")
    config = _to_steps(config_from_json(record.config), given["steps"])
    if record.end is None or given["steps"] is not None:
        check_model(config)
    _train(config, given["run"], {**given, "device": device, "threads": threads})


def _train(config: Config, folder: Path, given: Mapping[str, Any]) -> None:
    """Train one run, print its outcome and end with its exit code."""
    _check_output(given)
    check_folder(folder)
    _check_same_run(config, folder)
    runs = [PlannedRun(config, folder)]
    note_defenseless(runs, given)
    resume_text = resume_command(folder, data_dir=given["data_dir"])
    received: list[ExitCode] = []
    with closing(screen_for(quiet=given["quiet"], json=given["json"])) as screen:
        if not runs[0].has_ended:
            if given["tensorboard"]:
                check_tensorboard()
            fetch_missing(runs, screen, given)
            with interrupts(lambda: _hint(folder, resume_text)) as received:
                result = sweep_runs(runs, screen, received, given)
            if result.errors:
                raise result.errors[0]
    record = read_record(folder)
    _print_outcome(record, resume_text, quiet=given["quiet"], as_json=given["json"])
    _exit_by(_code_of(record, received))


def _resume_on_ranks(given: Mapping[str, Any]) -> None:
    """Resume with the threads of the start; only rank 0 reads the folder."""
    from holdfast.lab.cli._ranks import check_one_row_per_rank, join_ranks

    _check_output(given)
    with closing(join_ranks(given)) as ranks:
        start = ranks.together(lambda: _start_of(given["run"]) if ranks.is_first else ({}, None))
        content, threads = ranks.from_first(start)
        config = _to_steps(config_from_json(content), given["steps"])
        check_one_row_per_rank(config)
        changed = {**given, "threads": given["threads"] or threads}
        _train_on_ranks(config, given["run"], changed, ranks)


def _start_of(folder: Path) -> tuple[dict[str, Any], int | None]:
    """The configuration of a run, and its number of threads."""
    record = read_record(folder)
    return record.config, record.run.get("machine", {}).get("threads")


def _train_on_ranks(config: Config, folder: Path, given: Mapping[str, Any], ranks: "Ranks") -> None:
    """Train one run on this rank and the others; all end with the same exit code."""
    from holdfast.lab.cli._ranks import resume_on_ranks, train_on_ranks

    record, received = train_on_ranks(config, folder, given, ranks)
    code = ExitCode.FAILED
    if record is not None:
        resume_text = resume_on_ranks(resume_command(folder, data_dir=given["data_dir"]))
        _print_outcome(record, resume_text, quiet=given["quiet"], as_json=given["json"])
        code = _code_of(record, received)
    _exit_by(ranks.from_first(code))


def _to_steps(config: Config, n_steps: int | None) -> Config:
    """The configuration with this length, if given."""
    return config if n_steps is None else replace(config, n_steps=n_steps)


def _hint(folder: Path, resume_text: str) -> str:
    """How a run goes on that was stopped at once."""
    if (folder / CHECKPOINT_FILE).exists():
        return f" To resume: {resume_text}"
    return " There is no checkpoint yet: the same command begins again."


def _check_same_run(config: Config, folder: Path) -> None:
    """Refuse a folder with another run before anything is fetched or printed."""
    if is_record(folder):
        check_same_options(config_from_json(read_record(folder).config), config, folder)
        read_own(config, folder)


def _check_output(given: Mapping[str, Any]) -> None:
    """Refuse options that rank 0 alone would notice later."""
    check_nonnegative("--checkpoint-seconds", given["checkpoint_seconds"])
    if given["quiet"] and given["json"]:
        raise failure("--quiet", "be given without --json", "both")


def _code_of(record: Record, received: list[ExitCode]) -> ExitCode:
    """The exit code after a run, which signals may have stopped."""
    if record.end is None:
        return received[0] if received else ExitCode.INTERRUPTED
    return ExitCode.DIVERGED if record.end["end"] == "diverged" else ExitCode.DONE


def _exit_by(code: ExitCode) -> None:
    if code is not ExitCode.DONE:
        raise typer.Exit(code)


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
