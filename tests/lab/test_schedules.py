"""Schedules equal those of torch, and the record contains their learning rates."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import (
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    LRScheduler,
)

from holdfast.lab.optimizers import Adam, OptimizerSpec, Sgd
from holdfast.lab.schedules import (
    Constant,
    Cosine,
    CosineRestarts,
    Exponential,
    Schedule,
    schedules,
)
from holdfast.lab.training import run
from tests.lab.cases import TINY

N_EPOCHS = 40
TWINS: list[tuple[Schedule, Callable[[Any], LRScheduler]]] = [
    (Constant(), lambda optimizer: ConstantLR(optimizer, factor=1.0)),
    (Exponential(decay=0.9), lambda optimizer: ExponentialLR(optimizer, gamma=0.9)),
    (Exponential(decay=1.0), lambda optimizer: ExponentialLR(optimizer, gamma=1.0)),
    (Cosine(), lambda optimizer: CosineAnnealingLR(optimizer, T_max=N_EPOCHS)),
    (
        CosineRestarts(period=5, growth=1),
        lambda optimizer: CosineAnnealingWarmRestarts(optimizer, T_0=5),
    ),
    (
        CosineRestarts(period=3, growth=2),
        lambda optimizer: CosineAnnealingWarmRestarts(optimizer, T_0=3, T_mult=2),
    ),
    (
        CosineRestarts(period=1, growth=3),
        lambda optimizer: CosineAnnealingWarmRestarts(optimizer, T_0=1, T_mult=3),
    ),
]


@pytest.mark.parametrize(("schedule", "twin"), TWINS, ids=[str(case[0]) for case in TWINS])
def test_whole_epochs_equal_torch(schedule: Schedule, twin: Callable[[Any], LRScheduler]) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    scheduler = twin(optimizer)
    for epoch in range(N_EPOCHS + 1):
        assert 0.1 * schedule.factor(epoch, N_EPOCHS) == pytest.approx(
            optimizer.param_groups[0]["lr"], abs=1e-12
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch expects a step of the optimizer first
            scheduler.step()


def test_fractions_of_epochs_equal_torch() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scheduler = CosineAnnealingWarmRestarts(optimizer, T_0=3, T_mult=2)
        for i in range(1, 400):
            scheduler.step(i / 10)
            assert 0.1 * CosineRestarts(period=3, growth=2).factor(i / 10, 40) == pytest.approx(
                optimizer.param_groups[0]["lr"], abs=1e-9
            )


def test_every_schedule_has_a_twin_and_stays_between_zero_and_one() -> None:
    assert {schedule.name for schedule, _ in TWINS} == set(schedules.names)
    for schedule, _ in TWINS:
        factors = [schedule.factor(i / 7, N_EPOCHS) for i in range(7 * N_EPOCHS + 7)]
        assert all(0.0 <= factor <= 1.0 for factor in factors)
        assert factors[0] == 1.0
        assert (min(factors) < 0.05) == schedule.goes_to_zero or schedule.name == "exponential"


@pytest.mark.usefixtures("data_in_memory")
@pytest.mark.parametrize("schedule", [schedule for schedule, _ in TWINS], ids=str)
def test_the_record_contains_the_rate(schedule: Schedule, tmp_path: Path) -> None:
    """With three rows of 1000 samples, a pass over 6000 takes two steps."""
    optimizer: OptimizerSpec = Adam(lr=0.003) if schedule.goes_to_zero else Sgd(lr=0.02)
    config = replace(
        TINY,
        schedule=schedule,
        optimizer=optimizer,
        n_rows=3,
        row_size=1000,
        n_steps=7,
        evaluate_every=99,
    )
    rates = [entry["lr"] for entry in run(config, tmp_path).entries]
    assert rates == pytest.approx(
        [optimizer.lr * schedule.factor(step / 2, 3.5) for step in range(7)], rel=1e-12
    )


@pytest.mark.parametrize(("n", "batch", "n_passes"), [(3, 59, 59), (5, 29, 29), (10, 58, 29)])
def test_an_epoch_ends_where_its_last_sample_does(
    n: int, batch: int, n_passes: int, tmp_path: Path
) -> None:
    """The rate drops after exactly `n_passes`, also if step * share rounds to just below it."""
    n_steps = n_passes * n // batch + 1
    config = replace(
        TINY,
        schedule=Exponential(decay=0.9),
        n_rows=1,
        row_size=batch,
        n_trusted=6000 - n,
        n_steps=n_steps,
    )
    assert run(config, tmp_path).entries[-1]["lr"] == pytest.approx(0.01 * 0.9**n_passes)
