"""Configurations from options."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from holdfast.checks import check_one_of, failure
from holdfast.lab.cli._options import OPTIONS, flag_of
from holdfast.lab.config import Config, Threat, Workers, parse_rule, parse_threat
from holdfast.lab.data import data_sets
from holdfast.lab.optimizers import OptimizerSpec, optimizers
from holdfast.lab.partitions import partitions
from holdfast.lab.schedules import schedules
from holdfast.lab.schemes import Exchange, SendEverything, schemes
from holdfast.registry import unknown_name
from holdfast.threats import Adversaries

DEFAULT_ROWS = 32
DEFAULT_RULE = "radius-filter"
DEFAULT_OPTIMIZER = "sgd(momentum=0.9)"

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
    workers = _workers(given)
    optimizer, schedule = _optimizer(given), schedules.parse(given["schedule"])
    step = parse_rule(
        given["rule"] or (DEFAULT_RULE if workers is None else workers.scheme.default_rule),
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
        "n_rows": _n_rows(given),
        "partition": partitions.parse(given["partition"]),
        "threat": _threat(given),
        "optimizer": optimizer,
        "schedule": schedule,
        "n_steps": _n_steps(given, default_steps),
        "workers": workers,
    }
    return Config(**values | parsed | step)


def _workers(given: Mapping[str, Any]) -> Workers | None:
    names = ("send", "scheme", "local_steps", "outer_lr", "outer_momentum", "absent")
    options = {name: given[name] for name in names if name in given}
    if given.get("workers") is None:
        for name, value in options.items():
            if value != OPTIONS[name].default:
                raise failure(flag_of(name), "be given with --workers", value)
        return None
    send, scheme = options.pop("send"), options.pop("scheme")
    check_one_of({"--send": send, "--scheme": scheme}, may_omit=True)
    if scheme is not None:
        return Workers(scheme=schemes.parse(scheme), **options)
    return Workers(scheme=SendEverything() if send is None else Exchange(send=send), **options)


def _n_rows(given: Mapping[str, Any]) -> int:
    rows: int | None = given["rows"]
    workers: int | None = given.get("workers")
    check_one_of({"--rows": rows, "--workers": workers}, may_omit=True)
    return rows or workers or DEFAULT_ROWS


def _threat(given: Mapping[str, Any]) -> Threat:
    if given["attack"] is None:
        for name in ("corrupt", "fixed", "whole_rows"):
            if given[name]:
                requirement = "be given with --attack, which defines what bad rows send"
                raise failure(flag_of(name), requirement, given[name])
        return Threat()
    if given["corrupt"] is None:
        raise ValueError("`--corrupt` must be given with --attack: the bad fraction, such as 0.4.")
    is_fixed = given["fixed"] or given.get("workers") is not None
    return parse_threat(
        given["attack"],
        Adversaries(bad_fraction=given["corrupt"], redrawn=not is_fixed),
        whole_rows=given["whole_rows"],
    )


def _optimizer(given: Mapping[str, Any]) -> OptimizerSpec:
    changes = {name: given[name] for name in ("lr", "weight_decay") if given[name] is not None}
    default = DEFAULT_OPTIMIZER if given.get("workers") is None else "sgd"
    return replace(optimizers.parse(given["optimizer"] or default), **changes)  # type: ignore[type-var]


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
    batch_size: int = _n_rows(given) * given["batch"] * (given.get("local_steps") or 1)
    return math.ceil(epochs * n_samples / batch_size)
