"""Defects of public libraries, as tests that Holdfast does not have them."""

import itertools
import random

import pytest
import torch

from holdfast.aggregators import (
    Aggregator,
    CoordinateMedian,
    CovarianceFilter,
    GeometricMedian,
    Krum,
    Mean,
    MultiKrum,
    NormClipping,
    SpectralFilter,
    TrimmedMean,
)
from holdfast.geometry import Outcome
from tests.loops import naming
from tests.oracle import rules as oracle
from tests.oracle.geometric_median import geometric_median as oracle_median
from tests.oracle.geometric_median import objective
from tests.samples import gaussian


@pytest.mark.parametrize("c", [1e-6, 1.0, 1e6])
def test_absolute_smoothing_turns_the_median_of_small_gradients_into_the_mean(c: float) -> None:
    rows = gaussian(11, 40)
    rows[:4] += 8.0
    scaled = GeometricMedian()(c * rows)
    torch.testing.assert_close(scaled / c, GeometricMedian()(rows), rtol=1e-4, atol=1e-5)
    assert float((scaled / c - rows.mean(0)).norm()) > 1


def test_weights_that_compound_over_iterations_miss_the_median() -> None:
    rows, eta = gaussian(9, 4, dtype=torch.float64), torch.tensor([1.0, 2, 3, 1, 2, 3, 1, 2, 3])
    best = objective(rows, oracle_median(rows, eta), eta)
    assert objective(rows, GeometricMedian()(rows, row_weights=eta), eta) <= best * (1 + 1e-6)
    values = [
        objective(rows, GeometricMedian(max_steps=k, tolerance=1e-14)(rows, row_weights=eta), eta)
        for k in range(1, 6)
    ]
    assert all(later <= earlier * (1 + 1e-14) for earlier, later in itertools.pairwise(values))


def test_equal_weights_are_not_collapsed_into_one() -> None:
    rows = gaussian(6, 4)
    assert torch.equal(
        GeometricMedian()(rows, row_weights=torch.full((6,), 2.0)), GeometricMedian()(rows)
    )
    doubled = torch.cat([rows, rows[:2]])
    weighted = GeometricMedian()(rows, row_weights=torch.tensor([2.0, 2, 1, 1, 1, 1]))
    torch.testing.assert_close(GeometricMedian()(doubled), weighted, rtol=1e-3, atol=1e-3)


def test_uncentered_float32_distances_change_krums_choice() -> None:
    noise = gaussian(11, 2000, dtype=torch.float64)
    base = gaussian(1, 2000, seed=1, dtype=torch.float64)
    rows = (450 * base / base.norm() + 1e-4 * noise).float()
    assert torch.equal(Krum(n_bad=3)(rows), oracle.krum(rows.double(), 3).float())
    torch.testing.assert_close(MultiKrum(n_bad=3)(rows), oracle.multi_krum(rows, 3, 6).float())


@pytest.mark.parametrize(
    "rule",
    [Krum(n_bad=2), CoordinateMedian(), TrimmedMean(n_bad=2), GeometricMedian()],
    ids=lambda rule: rule.name,
)
def test_one_extreme_row_neither_wins_nor_poisons(rule: Aggregator) -> None:
    for value in (float("nan"), float("inf"), float("-inf"), 1e30, 1e-30):
        rows = gaussian(9, 20)
        rows[0] = value
        with naming(value):
            vector = rule(rows)
            assert bool(torch.isfinite(vector).all())
            assert float(vector.norm()) < 3 * float(rows[1:].norm(dim=1).max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_clipping_mutates_nothing(dtype: torch.dtype) -> None:
    rows = 10 * gaussian(9, 20, dtype=dtype)
    before = rows.clone()
    assert NormClipping(n_bad=2, rule=Mean())(rows).dtype == dtype
    assert NormClipping(radius=0.1, rule=TrimmedMean(n_bad=2))(rows).dtype == dtype
    assert torch.equal(rows, before)


def test_krum_scores_are_sums_of_squared_distances() -> None:
    for seed in range(20):
        rows = gaussian(9, 3, seed, torch.float64)
        assert torch.equal(Krum(n_bad=3)(rows), oracle.krum(rows, 3))


def test_the_solver_never_gives_up_with_zeros() -> None:
    rows = gaussian(9, 5) + 100
    result = GeometricMedian(max_steps=1, tolerance=1e-15).aggregate(rows)
    assert result.outcome in (Outcome.OUT_OF_STEPS, Outcome.STALLED)
    assert float((result.vector - rows.mean(0)).norm()) < 5


def test_no_rule_reads_or_resets_a_global_generator() -> None:
    rows = gaussian(9, 30)
    torch.manual_seed(0)
    random.seed(0)
    states = torch.get_rng_state(), random.getstate()
    first = [
        rule(rows) for rule in (SpectralFilter(n_bad=3), CovarianceFilter(), GeometricMedian())
    ]
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    torch.manual_seed(1)
    second = [
        rule(rows) for rule in (SpectralFilter(n_bad=3), CovarianceFilter(), GeometricMedian())
    ]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_the_median_of_wide_rows_works() -> None:
    """Torch's quantile stops at 2**24 values along a dimension."""
    rows = torch.zeros(3, 2**24 + 5, dtype=torch.float16)
    rows[0], rows[1, -1] = 1.0, 2.0
    vector = CoordinateMedian()(rows)
    assert vector[-1] == 1
    assert vector[:-1].abs().max() == 0


def test_weights_that_clients_report_count_only_as_weights() -> None:
    """A client that claims most of the examples is the majority by weight, unless it is capped."""
    rows = gaussian(9, 20)
    rows[0] = 1e6
    claimed = torch.tensor([1e9] + [100.0] * 8)
    assert float(GeometricMedian()(rows, row_weights=claimed).norm()) > 1e5
    capped = claimed.clamp(max=2 * float(claimed.median()))
    assert float(GeometricMedian()(rows, row_weights=capped).norm()) < 10
