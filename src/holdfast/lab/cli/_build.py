"""From options to a configuration."""

import math
from dataclasses import replace

from holdfast.checks import check_one_of, failure
from holdfast.lab.config import Config, Threat, parse_rule, parse_threat
from holdfast.lab.data import data_sets
from holdfast.lab.optimizers import OptimizerSpec, optimizers
from holdfast.lab.partitions import partitions
from holdfast.lab.schedules import Schedule, schedules
from holdfast.registry import unknown_name
from holdfast.threats import Adversaries

MOST_EPOCHS = 1e6
"""More is a mistake in the command, and would be found out much later."""


def threat_of(
    attack: str | None, corrupt: float | None, *, fixed: bool = False, whole_rows: bool = False
) -> Threat:
    """What `--attack`, `--corrupt`, `--fixed` and `--whole-rows` say together."""
    if attack is None:
        for option, given in (
            ("--corrupt", corrupt),
            ("--fixed", fixed),
            ("--whole-rows", whole_rows),
        ):
            if given:
                raise failure(option, "be given with --attack, which says what bad rows do", given)
        return Threat()
    if corrupt is None:
        raise ValueError(
            "`--corrupt` must be given with --attack: the share that is bad, such as 0.4."
        )
    adversaries = Adversaries(bad_fraction=corrupt, redrawn=not fixed)
    return parse_threat(attack, adversaries, whole_rows=whole_rows)


def optimizer_of(text: str, lr: float | None, weight_decay: float | None) -> OptimizerSpec:
    """The optimizer with the rate and the penalty that the options say."""
    given = {"lr": lr, "weight_decay": weight_decay}
    return replace(
        optimizers.parse(text),
        **{name: value for name, value in given.items() if value is not None},
    )  # type: ignore[type-var]


def n_steps_of(
    steps: int | None, epochs: float | None, *, n_samples: int, batch_size: int, default: int
) -> int:
    """How many steps `--steps` or `--epochs` mean."""
    if steps is None and epochs is None:
        return default
    check_one_of("--steps", steps, "--epochs", epochs)
    if steps is not None:
        return steps
    assert epochs is not None
    if not 0 < epochs <= MOST_EPOCHS:
        raise failure("--epochs", f"be above 0 and at most {MOST_EPOCHS:g}", epochs)
    return math.ceil(epochs * n_samples / batch_size)


def check_data_name(data: str) -> None:
    """A data set that there is."""
    if data not in data_sets:
        raise unknown_name("--data", data_sets, data)


def config_of(
    *,
    data: str,
    rule: str,
    threat: Threat,
    optimizer: OptimizerSpec,
    schedule: str,
    partition: str,
    selector: str | None = None,
    memory: str | None = None,
    **others: object,
) -> Config:
    """The configuration that texts and numbers describe."""
    rates: Schedule = schedules.parse(schedule)
    is_exact = optimizer.is_plain and not rates.goes_to_zero
    return Config(
        data=data,
        threat=threat,
        optimizer=optimizer,
        schedule=rates,
        partition=partitions.parse(partition),
        **parse_rule(rule, selector=selector, memory=memory, is_exact=is_exact),
        **others,  # type: ignore[arg-type]
    )
