"""The command line, up to the moment at which training would start."""

import json
import random
from pathlib import Path

import click
import typer
from typer.testing import CliRunner

from holdfast.aggregators import rules
from holdfast.lab.cli._app import app
from holdfast.lab.config import Config, config_to_json
from holdfast.lab.records import create_record
from holdfast.lab.schemes import schemes
from holdfast.threats import attacks
from tests.fuzz.mutation import VALUES, mutated_json, mutated_text
from tests.fuzz.parsers import stage

COMMAND = typer.main.get_command(app)
assert isinstance(COMMAND, click.Group)
NAMES = ("train", "train", "train", "attack", "resume", "report", "data", "list", "reproduce")

TEXTS = (
    *("", " ", "none", "shuffled", "shards", "sgd", "adam", "cosine", "exchange", "bgmd", "cpu"),
    *("meta", "cuda", "mlp", "os:system", "a.b:c", "-", "--", "/dev/null", "missing", "run"),
    *("0", "1", "3", "-1", "0.5", "2", "1e9", "1e999", "nan", "inf", "99999999999999999999"),
)

STOP = ("--data", "mnist", "--offline", "--data-dir", "empty")
"""At the end of a command that would train: its data are missing, which is found out last."""

CODES = {0, 1, 2, 4}


def commands(chance: random.Random, folder: Path) -> None:
    """Arguments that are refused in one sentence, or accepted by a command that lacks its data."""
    name = chance.choice(NAMES)
    arguments = [name, *_arguments(name, chance)]
    if name == "data":
        arguments = ["data", "list", *arguments[1:]]
    if chance.random() < 0.05:
        arguments = [_passed(mutated_text(one, chance)) for one in arguments]
    if name in ("train", "attack", "reproduce"):
        arguments += STOP if name != "reproduce" else STOP[2:]
    if name == "resume":
        _write_run(folder, chance)
    if name == "reproduce" and "table" not in " ".join(arguments):
        arguments.append("no-such-recipe")  # some figures need no data
    result = CliRunner().invoke(app, arguments, prog_name="holdfast")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        result.exception.add_note(f"holdfast {arguments}")
        raise result.exception
    assert result.exit_code in CODES, (result.exit_code, arguments)
    assert "Traceback" not in result.output, arguments


def _arguments(name: str, chance: random.Random) -> list[str]:
    """Some of the options that the command has, with values of any kind."""
    assert isinstance(COMMAND, click.Group)
    command = COMMAND.commands[name]
    if isinstance(command, click.Group):
        command = command.commands["list"]
    found: list[str] = []
    for parameter in chance.choices(command.params, k=chance.choice((0, 1, 2, 3, 4, 6))):
        if isinstance(parameter, click.Option) and parameter.name != "help":
            found.append(chance.choice([*parameter.opts, *parameter.secondary_opts]))
            found += [] if parameter.is_flag else [_value(chance)]
        else:
            found.append(_value(chance))
    return found


def _value(chance: random.Random) -> str:
    kind = chance.randrange(4)
    if kind == 0:
        value = stage(chance.choice((rules, attacks, schemes)), chance)
    elif kind == 1:
        value = chance.choice(VALUES)
    else:
        value = chance.choice(TEXTS)
    value = mutated_text(value, chance) if chance.random() < 0.1 else value
    return _passed(value)


def _passed(value: str) -> str:
    """The text as a system can pass it: without NUL, and with a byte that is no text as Python says."""
    return value.replace("\0", "").replace("\ud800", "\udcff")


def _write_run(folder: Path, chance: random.Random) -> None:
    """A run that lacks its data, damaged now and then."""
    config = config_to_json(Config(data="mnist"))
    create_record(folder / "run", config)
    if chance.random() < 0.5:
        path = folder / "run" / "run.json"
        path.write_text(json.dumps(mutated_json(json.loads(path.read_text()), chance)))
