"""`holdfast attack`."""

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from holdfast.lab.cli._config import config_of
from holdfast.lab.cli._console import console
from holdfast.lab.cli._runs import fetch_missing, interrupts, screen_for, sweep_runs
from holdfast.lab.cli._summary import percent
from holdfast.lab.config import Config
from holdfast.lab.records import Record, is_record, read_record
from holdfast.lab.sweep import plan_runs

DEFAULT_STEPS = 60
RULES = ["mean", "coordinate-median", "geometric-median", "radius-filter", "bgmd"]

Records = dict[tuple[str, bool], Record]
"""By rule, and by whether it is attacked."""


def attack(given: Mapping[str, Any]) -> None:
    """Train with every rule, without and with the attack, and compare the results."""
    quiet, as_json, folder = given["quiet"], given["json"], given["runs"]
    rules = list(dict.fromkeys(given["rules"] or RULES))
    keys = [(rule, is_attacked) for rule in rules for is_attacked in (False, True)]
    configs = [_config(given, rule, is_attacked) for rule, is_attacked in keys]
    runs, title = plan_runs(configs, folder), _title(configs[1])
    with closing(screen_for(title=title, quiet=quiet, json=as_json)) as screen:
        fetch_missing(runs, screen, given)
        with interrupts() as received:  # one run at a time, so that their times can be compared
            result = sweep_runs(runs, screen, received, given)
    if result.errors:
        raise result.errors[0]
    records = {
        key: read_record(run.folder)
        for key, run in zip(keys, runs, strict=True)
        if is_record(run.folder)
    }
    if as_json:
        typer.echo(json.dumps(_to_json(records), indent=2))
    else:
        console().print(Text(title, style="bold"), _table(rules, given["attack"], records))
        if not quiet:
            typer.echo(f"The records are in {folder}.")
    if result.was_stopped:
        typer.echo("Stopped; the same command continues.", err=True)
        raise typer.Exit(received[0])


def _config(given: Mapping[str, Any], rule: str, is_attacked: bool) -> Config:
    honest = {"attack": None, "corrupt": None, "fixed": False, "whole_rows": False}
    options = {**given, "rule": rule} | ({} if is_attacked else honest)
    config = config_of(options, default_steps=DEFAULT_STEPS)
    return replace(config, evaluate_every=config.n_steps)


def _title(config: Config) -> str:
    if config.threat.hits_rows:
        whole, what = config.n_rows, "rows"
    else:
        whole, what = config.batch_size, "samples"
    n_bad = config.threat.adversaries.count(whole)
    length = f"{config.n_steps} steps of {config.n_rows} rows"
    bad = f"under attack {n_bad} of {whole} {what} are bad"
    return f"{config.model} on {config.data}, {length}; {bad}"


def _table(rules: list[str], attack: str, records: Records) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("rule", style="cyan")
    for name in ("clean", attack, "time per step", "bad rows' weight"):
        table.add_column(name, justify="right")
    for rule in rules:
        clean, attacked = records.get((rule, False)), records.get((rule, True))
        time = Text("..." if clean is None else f"{1000 * _seconds(clean):.0f} ms", style="dim")
        table.add_row(Text(rule), _accuracy(clean), _accuracy(attacked), time, _weight(attacked))
    return table


def _to_json(records: Records) -> list[dict[str, Any]]:
    return [
        {
            "rule": rule,
            "attacked": is_attacked,
            "end": None if record.end is None else record.end["end"],
            "accuracy": record.accuracy,
            "seconds_per_step": _seconds(record),
            "bad_weight": record.bad_weight,
            "folder": str(record.folder),
        }
        for (rule, is_attacked), record in records.items()
    ]


def _accuracy(record: Record | None) -> Text:
    if record is None or record.end is None:
        return Text("...", style="dim")
    if record.end["end"] == "diverged":
        return Text("diverged", style="red")
    return Text(percent(record.accuracy))


def _weight(record: Record | None) -> Text:
    if record is None:
        return Text("...", style="dim")
    if record.bad_weight is not None:
        return Text(percent(record.bad_weight))
    threat = record.config["threat"]
    has_bad_rows = threat["attack"] or threat["whole_rows"]
    return Text("no weights" if has_bad_rows else "no bad rows", style="dim")


def _seconds(record: Record) -> float:
    """Return the mean time of a step without evaluations."""
    parts = record.seconds_per_step() if record.entries else {}
    return sum(seconds for part, seconds in parts.items() if part != "evaluation")
