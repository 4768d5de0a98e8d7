"""`holdfast list`."""

import inspect
import json
from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.table import Table

from holdfast.lab.cli._console import console
from holdfast.lab.cli._exit_codes import reports_errors
from holdfast.lab.config import all_rules
from holdfast.lab.data import data_sets
from holdfast.lab.models import models
from holdfast.lab.optimizers import optimizers
from holdfast.lab.paper import recipes
from holdfast.lab.partitions import partitions
from holdfast.lab.schedules import schedules
from holdfast.memory import memories
from holdfast.registry import Registry
from holdfast.robust_step import presets
from holdfast.selectors import selectors
from holdfast.threats import attacks, corruptions

Entry = tuple[str, str, str]
"""Name, arguments, and what it is in one sentence."""


class Kind(StrEnum):
    """What can be listed."""

    RULES = "rules"
    ATTACKS = "attacks"
    DATA = "data"
    MODELS = "models"
    SELECTORS = "selectors"
    MEMORIES = "memories"
    PARTITIONS = "partitions"
    OPTIMIZERS = "optimizers"
    SCHEDULES = "schedules"
    RECIPES = "recipes"


@reports_errors
def list_names(
    kind: Annotated[
        Kind | None, typer.Argument(help="Which kind; all of them by default.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Show the names that options take, with their arguments."""
    found = {one.value: listing() for one, listing in LISTINGS.items() if kind in (None, one)}
    if as_json:
        typer.echo(
            json.dumps(
                {
                    name: [
                        dict(zip(("name", "arguments", "what"), entry, strict=True))
                        for entry in entries
                    ]
                    for name, entries in found.items()
                },
                indent=2,
            )
        )
        return
    page = console()
    for name, entries in found.items():
        table = Table(
            title=name,
            title_justify="left",
            title_style="bold",
            box=None,
            padding=(0, 2, 0, 0),
            show_header=False,
        )
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(style="dim")
        table.add_column()
        for entry in entries:
            table.add_row(*entry)
        page.print(table, "")


def _first_sentence(documented: object) -> str:
    first = (inspect.getdoc(documented) or "").split("\n\n")[0]
    return first.replace("\n", " ").replace(":math:", "").replace("`", "")


def _members(registry: Registry[Any]) -> list[Entry]:
    return [
        (name, _fields_of(registry[name]), _first_sentence(registry[name]))
        for name in registry.names
    ]


def _fields_of(kind: type) -> str:
    listed = [
        entry.name if entry.default is MISSING else f"{entry.name}={entry.default!r}"
        for entry in fields(kind)
    ]
    return ", ".join(listed)


def _arguments_of(function: Callable[..., object]) -> str:
    listed: Iterable[inspect.Parameter] = inspect.signature(function).parameters.values()
    return ", ".join(
        f"{entry.name}={entry.default!r}" for entry in listed if entry.name != "generator"
    )


def _rules() -> list[Entry]:
    steps = [(name, _arguments_of(make), _first_sentence(make)) for name, make in presets.items()]
    return steps + _members(all_rules)


def _threats() -> list[Entry]:
    return _members(attacks) + _members(corruptions)


def _models() -> list[Entry]:
    return [(name, "", _first_sentence(make)) for name, make in models.items()]


def _data() -> list[Entry]:
    return [
        (name, "", f"{one.title}, {one.n_train:,} + {one.n_test:,} images ({one.licence})")
        for name, one in data_sets.items()
    ]


def _recipes() -> list[Entry]:
    return [(name, ", ".join(recipe.variants), recipe.title) for name, recipe in recipes.items()]


LISTINGS: dict[Kind, Callable[[], list[Entry]]] = {
    Kind.RULES: _rules,
    Kind.ATTACKS: _threats,
    Kind.DATA: _data,
    Kind.MODELS: _models,
    Kind.SELECTORS: lambda: _members(selectors),
    Kind.MEMORIES: lambda: _members(memories),
    Kind.PARTITIONS: lambda: _members(partitions),
    Kind.OPTIMIZERS: lambda: _members(optimizers),
    Kind.SCHEDULES: lambda: _members(schedules),
    Kind.RECIPES: _recipes,
}
