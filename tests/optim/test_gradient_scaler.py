"""Gradient scalers: nothing changes without overflow, and an overflow skips the whole step."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from holdfast import RobustStep, bgmd
from holdfast.errors import NonFiniteRowsError
from holdfast.optim import RobustOptimizer
from holdfast.robust_step import Step
from holdfast.sources import MicroBatches
from tests.optim.networks import OPTIMIZERS, batches, network, parameters_of, source_of
from tests.robust_step.steps import same_state

STEPS: dict[str, Callable[[], Step]] = {
    "a rule": lambda: RobustStep("geometric-median"),
    "delivery": lambda: bgmd(fraction=0.3),
}
every_step = pytest.mark.parametrize("make_step", STEPS.values(), ids=STEPS)


class Scaled:
    """A training step with a scaler."""

    def __init__(self, step: Step, kind: str = "SGD", scale: float = 2.0**8) -> None:
        self.model: nn.Module = network()
        self.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        inner = OPTIMIZERS[kind](list(self.model.parameters()))
        self.optimizer = RobustOptimizer(inner, step)
        self.source = MicroBatches(self.model, cross_entropy, n_rows=5, scaler=self.scaler)

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.optimizer.backward(self.source(x, y), scaler=self.scaler)
        self.scaler.unscale_(self.optimizer)
        self.scaler.step(self.optimizer)
        self.scaler.update()


@pytest.mark.parametrize("kind", ["SGD", "SGD with momentum", "AdamW, fused"])
def test_without_overflow_it_changes_nothing(kind: str) -> None:
    scaled, twin = Scaled(RobustStep("geometric-median"), kind), network()
    inner = OPTIMIZERS[kind](list(twin.parameters()))
    plain, source = RobustOptimizer(inner, "geometric-median"), source_of(twin)
    for x, y in batches(3):
        scaled.step(x, y)
        plain.zero_grad()
        plain.step(source(x, y))
    torch.testing.assert_close(
        parameters_of(scaled.model), parameters_of(twin), rtol=1e-4, atol=1e-5
    )


@every_step
def test_if_all_rows_overflow_the_step_is_skipped(make_step: Callable[[], Step]) -> None:
    """Parameters, moments, what is pending, generator and count stay; the next step is made."""
    scaled = Scaled(make_step(), "SGD with momentum")
    (x, y), (bad, _), (more, _) = batches(3)
    scaled.step(x, y)
    before, state = parameters_of(scaled.model), copy.deepcopy(scaled.optimizer.state_dict())
    scale = scaled.scaler.get_scale()
    scaled.step(bad * torch.inf, y)
    assert parameters_of(scaled.model).equal(before)
    assert scaled.scaler.get_scale() < scale
    after = scaled.optimizer.state_dict()
    assert same_state(after["holdfast"]["step"], state["holdfast"]["step"])
    pending = [state["holdfast"]["pending"], after["holdfast"]["pending"]]
    assert pending[0] is pending[1] is None or pending[0].equal(pending[1])
    for key, moments in state["state"].items():
        assert same_state(after["state"][key], moments)
    assert scaled.optimizer.result is None
    scaled.step(more, y)
    assert not parameters_of(scaled.model).equal(before)
    assert scaled.optimizer.robust_step.n_steps == 2


@every_step
def test_a_single_row_that_overflows_is_rejected(make_step: Callable[[], Step]) -> None:
    scaled, (x, y) = Scaled(make_step()), next(batches(1))
    x[:4] = torch.inf
    before = parameters_of(scaled.model)
    scaled.step(x, y)
    assert scaled.optimizer.result is not None
    assert scaled.optimizer.result.rejected.tolist() == [True, False, False, False, False]
    assert not parameters_of(scaled.model).equal(before)


@every_step
def test_a_scaler_that_is_switched_off_is_no_scaler(make_step: Callable[[], Step]) -> None:
    model, twin, (x, y) = network(), network(), next(batches(1))
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    optimizer = RobustOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), make_step())
    source = MicroBatches(model, cross_entropy, n_rows=5, scaler=scaler)
    with pytest.raises(NonFiniteRowsError):
        optimizer.backward(source(torch.full_like(x, torch.nan), y), scaler=scaler)
    optimizer.backward(source(x, y), scaler=scaler)
    scaler.step(optimizer)
    scaler.update()
    plain = RobustOptimizer(torch.optim.SGD(twin.parameters(), lr=0.1), make_step())
    plain.step(source_of(twin)(x, y))
    assert parameters_of(model).equal(parameters_of(twin))


def test_a_scaler_belongs_to_backward() -> None:
    """In `step` nobody would unscale the gradient."""
    scaled = Scaled(RobustStep("mean"))
    step: Any = scaled.optimizer.step
    with pytest.raises(TypeError, match="scaler"):
        step(scaled.source(*next(batches(1))), scaler=scaled.scaler)
