"""Configurations from options."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from holdfast.aggregators import rules
from holdfast.checks import check_one_of, failure
from holdfast.lab.cli._defaults import (
    DEFAULT_OPTIMIZER,
    DEFAULT_ROWS,
    DEFAULT_RULE,
    WORKERS_OPTIMIZER,
)
from holdfast.lab.cli._option import flag_of
from holdfast.lab.cli._options import OPTIONS
from holdfast.lab.config import Config, Threat, Workers, format_threat, parse_rule, parse_threat
from holdfast.lab.data import DataDescription, OwnData, data_sets, own_data
from holdfast.lab.optimizers import OptimizerSpec, optimizers
from holdfast.lab.own_models import architecture, is_own_model
from holdfast.lab.partitions import partitions
from holdfast.lab.schedules import schedules
from holdfast.lab.schemes import Exchange, SendEverything, schemes
from holdfast.registry import suggestion
from holdfast.robust_step import memories
from holdfast.selectors import selectors
from holdfast.threats import Adversaries, report_lies

PLAIN = (
    *("model", "batch", "worker_momentum", "average", "trusted"),
    *("seed", "evaluate_every", "rows_every"),
)
"""Options whose value is that of a field."""

MOST_EPOCHS = 1e6
"""More is a mistake in the command that would show much later."""


def config_of(given: Mapping[str, Any], *, default_steps: int) -> Config:
    """Build the configuration that options describe.

    Args:
        given: values of the options by name; fields without an option keep their defaults.
        default_steps: number of steps without `--steps` and `--epochs`.
    """
    own, workers = _own_data(given["data"]), _workers(given)
    optimizer, schedule = _optimizer(given), schedules.parse(given["schedule"])
    default_rule = DEFAULT_RULE if workers is None else workers.scheme.default_rule
    step = parse_rule(
        default_rule if given["rule"] is None else given["rule"],
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
        "n_steps": _n_steps(given, default_steps, data_sets[given["data"]] if own is None else own),
        "workers": workers,
    }
    if own is not None:
        parsed |= {"data": Path(own.folder).resolve().name, "own_data": own}
    config = Config(**values | parsed | step)
    check_model(config)
    return config


def _own_data(name: str) -> OwnData | None:
    """Return the data set in a folder of the user's, or None for the name of another."""
    if name in data_sets:
        return None
    if not Path(name).is_dir():
        known = f"be a folder or one of {', '.join(data_sets)}"
        raise failure("--data", known, f"{name!r}{suggestion(name, data_sets)}")
    return own_data(name)


def check_model(config: Config) -> None:
    """Refuse a model that cannot be built for the data, before a run begins."""
    if config.own_data is not None or is_own_model(config.model):
        sizes: dict[str, Any] = {"shape": config.data_set.shape, "n_classes": config.n_classes}
        architecture(config.model)(**sizes, generator=torch.Generator())


def typed_options(config: Config) -> dict[str, str]:
    """Return how a configuration is typed: its options with their values, lengths apart.

    Options that would not be typed are left out.
    """
    threat, workers, optimizer = config.threat, config.workers, config.optimizer
    own = config.own_data
    usual = type(optimizer)()
    plain = replace(optimizer, lr=usual.lr, weight_decay=usual.weight_decay)  # type: ignore[type-var]
    values: dict[str, object] = {
        **{name: getattr(config, OPTIONS[name].field or name) for name in PLAIN},
        "data": config.data if own is None else f"{own.folder} (SHA-256 {own.digest[:8]}...)",
        "rows" if workers is None else "workers": config.n_rows,
        "rule": rules.format(config.rule),
        "selector": selectors.format(config.selector),
        "memory": None if config.memory is None else memories.format(config.memory),
        "partition": partitions.format(config.partition),
        "optimizer": optimizers.format(plain),
        "lr": optimizer.lr,
        "weight_decay": optimizer.weight_decay,
        "schedule": schedules.format(config.schedule),
    }
    if threat.attack is not None or threat.corruption is not None:
        values["attack"] = format_threat(replace(threat, lie=None))
    if threat.lie is not None:
        values["lie"] = report_lies.format(threat.lie)
    if "attack" in values or "lie" in values:
        adversaries = threat.adversaries
        shares = (adversaries.bad_fraction, adversaries.n_bad)
        values["corrupt"] = next(one for one in shares if one is not None)
        values["fixed"] = None if workers is not None or adversaries.redrawn else "given"
        values["whole_rows"] = "given" if threat.whole_rows else None
    if workers is not None:
        names = ("local_steps", "outer_lr", "outer_momentum", "absent")
        values |= {name: getattr(workers, name) for name in names}
        values["scheme"] = schemes.format(workers.scheme)
    return {
        flag_of(name): f"{value:g}" if isinstance(value, float) else str(value)
        for name, value in values.items()
        if value is not None
    }


def check_same_options(there: Config, here: Config, folder: Path) -> None:
    """Refuse a folder that holds another run, by the options that differ; lengths may differ."""
    one, other = typed_options(there), typed_options(here)
    differences = [
        f"`{flag}` is {one.get(flag, 'not given')} there, {other.get(flag, 'not given')} here"
        for flag in {**one, **other}
        if one.get(flag) != other.get(flag)
    ]
    if differences:
        another = f"{folder}, which holds another ({', '.join(differences)})"
        raise failure("--folder", "be new, or hold this very run", another)


def _workers(given: Mapping[str, Any]) -> Workers | None:
    names = ("send", "scheme", "local_steps", "outer_lr", "outer_momentum", "absent")
    options = {name: given[name] for name in names if name in given}
    if given.get("workers") is None:
        for name, value in options.items():
            if value != OPTIONS[name].default:
                raise failure(flag_of(name), "be given with --workers", value)
        return None
    send, scheme = options.pop("send", None), options.pop("scheme", None)
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
    attack, lie = given["attack"], given.get("lie")
    if attack is None and lie is None:
        for name in ("corrupt", "fixed", "whole_rows"):
            if given[name]:
                requirement = "be given with --attack, which defines what bad rows send"
                raise failure(flag_of(name), requirement, given[name])
        return Threat()
    if given["corrupt"] is None:
        needs = "--lie" if attack is None else "--attack"
        raise ValueError(f"`--corrupt` must be given with {needs}: the bad fraction, such as 0.4.")
    is_fixed = given["fixed"] or given.get("workers") is not None
    adversaries = Adversaries(bad_fraction=given["corrupt"], redrawn=not is_fixed)
    reports = None if lie is None else report_lies.parse(lie)
    if attack is None:
        return Threat(lie=reports, adversaries=adversaries, whole_rows=given["whole_rows"])
    threat = parse_threat(attack, adversaries, whole_rows=given["whole_rows"])
    return replace(threat, lie=reports)


def _optimizer(given: Mapping[str, Any]) -> OptimizerSpec:
    changes = {name: given[name] for name in ("lr", "weight_decay") if given[name] is not None}
    text: str | None = given["optimizer"]
    if text is None:
        text = DEFAULT_OPTIMIZER if given.get("workers") is None else WORKERS_OPTIMIZER
    return replace(optimizers.parse(text), **changes)  # type: ignore[type-var]


def _n_steps(given: Mapping[str, Any], default: int, data: DataDescription | OwnData) -> int:
    steps: int | None = given["steps"]
    epochs: float | None = given["epochs"]
    if steps is None and epochs is None:
        return default
    check_one_of({"--steps": steps, "--epochs": epochs}, may_omit=True)
    if steps is not None:
        return steps
    assert epochs is not None
    if not 0 < epochs <= MOST_EPOCHS:
        raise failure("--epochs", f"be above 0 and at most {MOST_EPOCHS:g}", epochs)
    n_samples: int = data.n_train - given["trusted"]
    batch_size: int = _n_rows(given) * given["batch"] * (given.get("local_steps") or 1)
    return math.ceil(epochs * n_samples / batch_size)
