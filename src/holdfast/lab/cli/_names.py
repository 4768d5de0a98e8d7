"""All names that options accept, with arguments and descriptions."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any

from holdfast.aggregators import rules
from holdfast.lab.data import data_sets
from holdfast.lab.models import models
from holdfast.lab.optimizers import optimizers
from holdfast.lab.paper import recipes
from holdfast.lab.partitions import partitions
from holdfast.lab.schedules import schedules
from holdfast.lab.schemes import schemes
from holdfast.registry import Registry
from holdfast.robust_step import memories, presets
from holdfast.selectors import selectors
from holdfast.threats import attacks, corruptions

Entry = tuple[str, str, str]
"""Name, arguments and description."""


def collect_names() -> dict[str, list[Entry]]:
    """Return name, arguments and description of everything that can be named, by kind."""
    steps = [(name, _arguments_of(make), _summary(make)) for name, make in presets.items()]
    images = {
        name: f"{one.title}, {one.n_train:,} + {one.n_test:,} images ({one.license})"
        for name, one in data_sets.items()
    }
    return {
        "rules": steps + _members(rules),
        "attacks": _members(attacks) + _members(corruptions),
        "data": [(name, "", text) for name, text in images.items()],
        "models": [(name, "", _summary(make)) for name, make in models.items()],
        "schemes": _members(schemes),
        "selectors": _members(selectors),
        "memories": _members(memories),
        "partitions": _members(partitions),
        "optimizers": _members(optimizers),
        "schedules": _members(schedules),
        "recipes": [
            (name, ", ".join(recipe.variants), recipe.title) for name, recipe in recipes.items()
        ],
    }


def _members(registry: Registry[Any]) -> list[Entry]:
    return [(name, _fields_of(registry[name]), _summary(registry[name])) for name in registry.names]


def _summary(documented: object) -> str:
    """Return the first paragraph of a docstring without markup."""
    first = (inspect.getdoc(documented) or "").split("\n\n")[0]
    return first.replace("\n", " ").replace(":math:", "").replace("`", "")


def _fields_of(kind: type) -> str:
    return ", ".join(
        entry.name if entry.default is MISSING else f"{entry.name}={entry.default!r}"
        for entry in fields(kind)
    )


def _arguments_of(function: Callable[..., object]) -> str:
    arguments = inspect.signature(function).parameters.values()
    return ", ".join(f"{one.name}={one.default!r}" for one in arguments if one.name != "generator")
