"""The k largest of many norms, with a sampled threshold: always exactly those."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from holdfast.seeds import stream
from holdfast.selectors._top_norm import SAMPLE, _candidates, largest
from tests.loops import naming
from tests.samples import gaussian

LARGE = 5 * SAMPLE + 123  # above the size from which on a threshold is sampled
STRIDE = LARGE // SAMPLE  # of the sample


def slow_largest(values: Tensor, k: int) -> Tensor:
    """A stable sort keeps equal values in their order, so the first of them come first."""
    return values.sort(descending=True, stable=True).indices[:k].sort().values


def every(step: int, inside: float, outside: float) -> Tensor:
    """A value at every `step`-th place and another one elsewhere."""
    values = torch.full((LARGE,), outside)
    values[::step] = inside
    return values


def ties() -> Tensor:
    return torch.randint(0, 4, (LARGE,), generator=stream(0, "ties")).float()


def mostly_zero() -> Tensor:
    return gaussian(1, LARGE)[0].abs().where(gaussian(1, LARGE, seed=1)[0] > 2, 0.0)


VALUES = {
    "normal": gaussian(1, LARGE)[0].abs(),
    "float64": gaussian(1, LARGE, dtype=torch.float64)[0].abs(),
    "heavy tails": gaussian(1, LARGE)[0].mul(8).exp(),
    "increasing": torch.arange(float(LARGE)),
    "decreasing": torch.arange(float(LARGE)).flip(0),
    "four values": ties(),
    "all equal": torch.ones(LARGE),
    "all zero": torch.zeros(LARGE),
    "mostly zero": mostly_zero(),
    "one above zero": every(LARGE, 1.0, 0.0),
    "the sample sees only large ones": every(STRIDE, 9.0, 1.0) * gaussian(1, LARGE)[0].abs(),
    "the sample sees only small ones": every(STRIDE, 0.0, 1.0) * gaussian(1, LARGE)[0].abs(),
    "the sample sees zeros of ones": every(STRIDE, 0.0, 1.0),
    "the sample sees ones of zeros": every(STRIDE, 1.0, 0.0),
    "half of the sample": every(2 * STRIDE, 5.0, 1.0),
    "infinite": every(7 * STRIDE + 1, float("inf"), 1.0),
}


@pytest.mark.parametrize("name", VALUES)
def test_exactly_the_largest_and_of_equals_the_first(name: str) -> None:
    values = VALUES[name]
    for k in (1, 2, 100, LARGE // 50, LARGE // 10, LARGE // 3, LARGE // 2 + 1, LARGE):
        with naming(k):
            assert largest(values, k).equal(slow_largest(values, k))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.integers(1, 40))
def test_few_values_as_well(values: list[int], k: int) -> None:
    tensor = torch.tensor(values, dtype=torch.float32)
    k = min(k, len(values))
    assert largest(tensor, k).equal(slow_largest(tensor, k))


@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.3])
def test_the_threshold_leaves_few_candidates(fraction: float) -> None:
    """So that the selection among them is cheap, which is what the sample is for."""
    values = VALUES["normal"]
    k = round(fraction * LARGE)
    candidates = _candidates(values, k)
    assert candidates is not None
    assert k <= len(candidates) < 1.2 * k + 0.05 * LARGE
    assert _candidates(values[: 4 * SAMPLE], k) is None
