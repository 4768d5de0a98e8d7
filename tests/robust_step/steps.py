"""Steps of both orders, with every selector and every memory."""

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from holdfast import RobustStep, SelectFirstStep
from holdfast.aggregators import Aggregator, GeometricMedian
from holdfast.robust_step import MeanMemory, Memory, NoMemory, RowMemory, Step, StepResult
from holdfast.seeds import stream
from holdfast.selectors import Cyclic, Everything, NormSampling, Selector, TopNorm, Uniform
from tests.samples import gaussian

N, D = 15, 230
SELECTORS: list[Selector] = [
    Everything(),
    NormSampling(fraction=0.2, tile=1),
    NormSampling(count=3, tile=16, capped=False),
    Uniform(fraction=0.2, tile=16),
    TopNorm(fraction=0.2, tile=1),
    TopNorm(fraction=0.2, tile=8),
    Cyclic(count=4, tile=16),
]
MEMORIES: list[Memory] = [
    NoMemory(),
    MeanMemory(),
    MeanMemory(units="gradient"),
    RowMemory(),
    RowMemory(units="gradient"),
]
MakeStep = Callable[[Aggregator | str, Selector], Step]


def seeded() -> torch.Generator:
    return stream(5, "step")


def select_first(memory: Memory) -> MakeStep:
    return lambda rule, selector: SelectFirstStep(
        rule, selector=selector, memory=memory, generator=seeded()
    )


ORDERS: dict[str, MakeStep] = {
    "deliver, parameter": lambda rule, selector: RobustStep(
        rule, selector=selector, generator=seeded()
    ),
    "deliver, gradient": lambda rule, selector: RobustStep(
        rule, selector=selector, units="gradient", generator=seeded()
    ),
    **{f"select first, {memory!r}": select_first(memory) for memory in MEMORIES},
}
every_order = pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
every_selector = pytest.mark.parametrize("selector", SELECTORS, ids=repr)


def run(step: Step, n_steps: int = 6, dtype: torch.dtype = torch.float64) -> list[StepResult]:
    return [step(gaussian(N, D, seed, dtype), lr=0.1 + 0.01 * seed) for seed in range(n_steps)]


def median_step(order: MakeStep, selector: Selector) -> Step:
    return order(GeometricMedian(), selector)


def same_state(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two states are equal, bit for bit."""
    assert one.keys() == other.keys()
    return all(
        value.equal(other[key]) if isinstance(value, Tensor) else value == other[key]
        for key, value in one.items()
    )


def through_a_file(state: dict[str, Any]) -> Any:
    """The state as `torch.load` reads it from what `torch.save` wrote."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)
