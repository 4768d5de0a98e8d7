"""Configurations from options."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from holdfast.checks import check_one_of, failure
from holdfast.lab.cli._options import OPTIONS, flag_of
from holdfast.lab.config import Config, Threat, parse_rule, parse_threat
from holdfast.lab.data import data_sets
from holdfast.lab.optimizers import OptimizerSpec, optimizers
from holdfast.lab.partitions import partitions
from holdfast.lab.schedules import schedules
from holdfast.registry import unknown_name
from holdfast.threats import Adversaries

MOST_EPOCHS = 1e6
"""More is a mistake in the command that would show much later."""


def config_of(given: Mapping[str, Any], *, default_steps: int) -> Config:
    """Build the configuration that options describe.

    Args:
        given: values of the options by name; fields without an option keep their defaults.
        default_steps: number of steps without `--steps` and `--epochs`.
    """
    if given["data"] not in data_sets:
        raise unknown_name("--data", data_sets, given["data"])
    optimizer, schedule = _optimizer(given), schedules.parse(given["schedule"])
    step = parse_rule(
        given["rule"],
        selector=given.get("selector"),
        memory=given.get("memory"),
        is_exact=optimizer.is_plain and not schedule.goes_to_zero,
    )
    values = {
        option.field: given[name]
        for name, option in OPTIONS.items()
        if option.field and name in given and name not in ("rule", "selector", "memory")
    }
    parsed = {
        "partition": partitions.parse(given["partition"]),
        "threat": _threat(given),
        "optimizer": optimizer,
        "schedule": schedule,
        "n_steps": _n_steps(given, default_steps),
    }
    return Config(**values | parsed | step)


def _threat(given: Mapping[str, Any]) -> Threat:
    if given["attack"] is None:
        for name in ("corrupt", "fixed", "whole_rows"):
            if given[name]:
                requirement = "be given with --attack, which defines what bad rows send"
                raise failure(flag_of(name), requirement, given[name])
        return Threat()
    if given["corrupt"] is None:
        raise ValueError("`--corrupt` must be given with --attack: the bad fraction, such as 0.4.")
    return parse_threat(
        given["attack"],
        Adversaries(bad_fraction=given["corrupt"], redrawn=not given["fixed"]),
        whole_rows=given["whole_rows"],
    )


def _optimizer(given: Mapping[str, Any]) -> OptimizerSpec:
    changes = {name: given[name] for name in ("lr", "weight_decay") if given[name] is not None}
    return replace(optimizers.parse(given["optimizer"]), **changes)  # type: ignore[type-var]


def _n_steps(given: Mapping[str, Any], default: int) -> int:
    steps: int | None = given["steps"]
    epochs: float | None = given["epochs"]
    if steps is None and epochs is None:
        return default
    check_one_of({"--steps": steps, "--epochs": epochs})
    if steps is not None:
        return steps
    assert epochs is not None
    if not 0 < epochs <= MOST_EPOCHS:
        raise failure("--epochs", f"be above 0 and at most {MOST_EPOCHS:g}", epochs)
    n_samples: int = data_sets[given["data"]].n_train - given["trusted"]
    batch_size: int = given["rows"] * given["batch"]
    return math.ceil(epochs * n_samples / batch_size)
