"""`holdfast attack`."""

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import typer
from rich.text import Text

from holdfast.checks import failure
from holdfast.lab.cli._attack_table import Records, attack_table, seconds_of
from holdfast.lab.cli._config import config_of
from holdfast.lab.cli._console import console
from holdfast.lab.cli._defaults import ATTACK_ROWS, ATTACK_WORKERS, ATTACKS, METHODS, RULES
from holdfast.lab.cli._runs import (
    check_folder,
    fetch_missing,
    interrupts,
    note_defenseless,
    parse_device,
    screen_for,
    sweep_runs,
)
from holdfast.lab.config import Config, format_average, rule_names
from holdfast.lab.records import is_record, read_record
from holdfast.lab.schemes import Exchange, schemes
from holdfast.lab.sweep import n_cores, plan_runs
from holdfast.registry import unknown_name

EXPLANATION = "exchange is BGMD with worker memory: all send the block that they agreed on, and keep the rest."


def attack(given: Mapping[str, Any]) -> None:
    """Train with every rule, without and with each attack, and compare the results."""
    quiet, as_json, folder = given["quiet"], given["json"], given["runs"]
    check_folder(folder)
    methods = list(dict.fromkeys(given["rules"] or (METHODS if given["rows"] is None else RULES)))
    attacks = list(dict.fromkeys(given["attacks"] or ATTACKS))
    keys = [(method, attack) for method in methods for attack in (None, *attacks)]
    configs = [_config(given, method, attack) for method, attack in keys]
    runs, title = plan_runs(configs, folder), _title(configs[1])
    note_defenseless(runs, given)
    is_on_cpu = parse_device(given["device"]).type == "cpu"
    n_workers = given["jobs"] or (n_cores() if is_on_cpu else 1)
    with closing(screen_for(title=title, quiet=quiet, json=as_json)) as screen:
        fetch_missing(runs, screen, given)
        with interrupts() as received:
            result = sweep_runs(runs, screen, received, given, n_workers=n_workers)
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
        output = console()
        table, left_out = attack_table(methods, attacks, records, output)
        output.print(Text(title, style="bold"), table)
        if not quiet:
            if left_out:
                typer.echo(f"A wider terminal also shows {' and '.join(left_out)}.")
            if Exchange.name in methods:
                typer.echo(EXPLANATION)
            typer.echo(f"The records are in {folder}.")
    if result.was_stopped:
        typer.echo("Stopped; the same command continues.", err=True)
        raise typer.Exit(received[0])


def _config(given: Mapping[str, Any], method: str, attack: str | None) -> Config:
    honest = {"corrupt": None, "fixed": False, "whole_rows": False}
    options = {**given, "attack": attack, **({} if attack else honest)}
    has_workers = given["rows"] is None
    defaults = ATTACK_WORKERS if has_workers else ATTACK_ROWS
    missing = {name: value for name, value in defaults.items() if options.get(name) is None}
    if given["epochs"] is not None:
        missing.pop("steps", None)
    name, known = method.split("(")[0].strip(), [*rule_names(), *schemes.names]
    if name.replace("-", "_").isidentifier() and name not in known:
        raise unknown_name("--rule", known, name)
    is_scheme = name in schemes.names
    if is_scheme and not has_workers:
        raise failure("--rule", "be a rule with --rows; schemes are for workers", method)
    options |= missing | ({"scheme": method} if is_scheme else {"rule": method})
    config = config_of({"rule": None, **options}, default_steps=0)
    return replace(config, evaluate_every=config.n_steps)


def _title(config: Config) -> str:
    what = "rows" if config.workers is None else "workers"
    if config.threat.hits_rows:
        n_bad = config.threat.adversaries.count(config.n_rows)
        bad = f"{n_bad} of {config.n_rows} {what} are bad"
    else:
        n_bad = config.threat.adversaries.count(config.batch_size)
        bad = f"{n_bad} of {config.batch_size} samples are bad"
    length = f"{config.n_steps:,} steps of {config.n_rows} {what}"
    tested = f"; tested: {format_average(config.average)}" if config.average else ""
    return f"{config.model} on {config.data}, {length}; under attack {bad}{tested}"


def _to_json(records: Records) -> list[dict[str, Any]]:
    return [
        {
            "rule": method,
            "attack": attack,
            "end": None if record.end is None else record.end["end"],
            "accuracy": record.accuracy,
            "bytes_per_round": record.bytes_per_round,
            "seconds_per_step": seconds_of(record),
            "bad_weight": record.bad_weight,
            "folder": str(record.folder),
        }
        for (method, attack), record in records.items()
    ]
