"""The geometric median: optimal, certified, honest."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from holdfast.aggregators import GeometricMedian
from holdfast.geometry import (
    DenseRows,
    Outcome,
    Solution,
    geometric_median,
)
from holdfast.geometry._central import nearer_half
from tests.loops import naming
from tests.oracle.geometric_median import geometric_median as oracle
from tests.oracle.geometric_median import is_optimal, objective
from tests.samples import gaussian


def solve(rows: Tensor, **options: object) -> tuple[Solution, Tensor]:
    dense = DenseRows(rows)
    gram = dense.gram()
    solution = geometric_median(gram, **options)  # type: ignore[arg-type]
    return solution, dense.combine(solution.weights, exact=gram.exact)


def good_half(rows: Tensor, point: Tensor) -> float:
    distances = (rows.double() - point.double()).norm(dim=1).sort().values
    return float(distances[: (len(rows) + 1) // 2].sum())


@settings(max_examples=25)
@given(n=st.integers(1, 12), d=st.integers(1, 8), seed=st.integers(0, 10_000))
def test_is_optimal_and_its_gap_is_true(n: int, d: int, seed: int) -> None:
    rows = gaussian(n, d, seed, torch.float64)
    solution, point = solve(rows)
    best = oracle(rows)
    excess = objective(rows, point) - objective(rows, best)
    assert solution.gap is not None
    assert solution.gap <= 1e-6
    assert excess <= solution.gap * good_half(rows, point) + 1e-9
    assert solution.outcome in (Outcome.CERTIFIED, Outcome.EXACT)


@settings(max_examples=15)
@given(
    n=st.integers(3, 12), d=st.integers(2, 8), seed=st.integers(0, 10_000), n_far=st.integers(1, 5)
)
def test_the_gap_is_true_though_far_rows_inflate_the_objective(
    n: int, d: int, seed: int, n_far: int
) -> None:
    rows = gaussian(n, d, seed, torch.float64)
    n_far = min(n_far, (n - 1) // 2)
    rows[:n_far] *= 1e7
    solution, point = solve(rows)

    # Far rows pull with unit vectors that hardly depend on the point, so the rest of the problem
    # can be solved exactly.
    def near_objective(y: Tensor) -> float:
        far = rows[:n_far]
        return objective(rows[n_far:], y) - float(((far / far.norm(dim=1, keepdim=True)) @ y).sum())

    excess = near_objective(point) - near_objective(oracle(rows))
    assert excess <= 1e-5 * good_half(rows, point)  # 1e-6 certified, and 1 / FAR of the pull
    assert solution.outcome in (Outcome.CERTIFIED, Outcome.EXACT)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-6, 1e-12])
def test_the_optimality_condition_holds(tolerance: float) -> None:
    rows = gaussian(25, 60, dtype=torch.float64)
    solution, point = solve(rows, tolerance=tolerance)
    assert solution.gap is not None
    assert solution.gap <= tolerance
    assert is_optimal(rows, point, tolerance=max(1e-8, tolerance**0.5))


@given(n=st.integers(2, 9), d=st.integers(1, 5), seed=st.integers(0, 999))
def test_equivariance(n: int, d: int, seed: int) -> None:
    rows = gaussian(n, d, seed, torch.float64)
    _, point = solve(rows, tolerance=1e-12)
    shift = 10 * gaussian(1, d, seed + 1, torch.float64)[0]
    rotation = torch.linalg.qr(gaussian(d, d, seed + 2, torch.float64)).Q
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(
        solve(rows + shift, tolerance=1e-12)[1], point + shift, rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(
        solve(1e-7 * rows, tolerance=1e-12)[1], 1e-7 * point, rtol=1e-4, atol=1e-12
    )
    torch.testing.assert_close(
        solve(rows @ rotation, tolerance=1e-12)[1], point @ rotation, rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(solve(rows[order], tolerance=1e-12)[1], point, rtol=1e-4, atol=1e-5)


@given(n=st.integers(1, 12), d=st.integers(1, 6), seed=st.integers(0, 999))
def test_weights_are_a_convex_combination(n: int, d: int, seed: int) -> None:
    rows = gaussian(n, d, seed)
    rows[: (n - 1) // 2] *= 1e12
    solution, _ = solve(rows)
    assert bool((solution.weights >= 0).all())
    assert float(solution.weights.sum()) == pytest.approx(1)


@settings(max_examples=15)
@given(n=st.integers(3, 8), d=st.integers(2, 5), seed=st.integers(0, 999))
def test_row_weights(n: int, d: int, seed: int) -> None:
    rows = gaussian(n, d, seed, torch.float64)
    eta = torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.05
    _, point = solve(rows, row_weights=eta / eta.sum())
    assert objective(rows, point, eta) <= objective(rows, oracle(rows, eta), eta) * (1 + 1e-6)


def test_a_row_that_is_the_median_is_found_exactly() -> None:
    corners = torch.tensor([[1.0, 1], [1, -1], [-1, 1], [-1, -1], [0.1, 0.05]])
    solution, point = solve(corners)
    assert solution.outcome is Outcome.EXACT
    assert solution.gap == 0
    assert torch.equal(point, corners[4])


def test_a_median_next_to_a_row_is_not_confused_with_it() -> None:
    """The pull of the others slightly exceeds the row's own weight, so the median is beside it."""
    triangle = torch.tensor(
        [[0.0, 0.0], [1.0, 0.0], [-0.5, 3**0.5 / 2 + 1e-3]], dtype=torch.float64
    )
    solution, point = solve(triangle, tolerance=1e-12)
    assert solution.outcome is Outcome.CERTIFIED
    assert objective(triangle, point) <= objective(triangle, oracle(triangle)) * (1 + 1e-12)


def test_of_many_medians_the_middle_one() -> None:
    line = torch.tensor([[0.0], [1.0], [3.0], [100.0]])
    assert solve(line)[1].tolist() == [2.0]
    assert solve(torch.tensor([[0.0, 0.0], [2.0, 4.0]]))[1].tolist() == [1.0, 2.0]


def test_collinear_rows_in_space() -> None:
    direction = gaussian(1, 50, dtype=torch.float64)
    rows = torch.tensor([[-3.0], [0.5], [1.0], [2.0], [70.0]], dtype=torch.float64) @ direction
    torch.testing.assert_close(solve(rows)[1], direction[0])


def test_a_majority_on_one_point_is_that_point() -> None:
    rows = gaussian(9, 30)
    rows[:5] = rows[0]
    solution, point = solve(rows)
    assert solution.outcome is Outcome.EXACT
    assert torch.equal(point, rows[0])


def test_out_of_steps_is_said_and_the_iterate_is_good() -> None:
    rows = gaussian(9, 5, seed=3, dtype=torch.float64)
    values = []
    for max_steps in (1, 2, 3):
        solution, point = solve(rows, tolerance=1e-15, max_steps=max_steps)
        assert solution.outcome is Outcome.OUT_OF_STEPS
        assert solution.steps == max_steps
        values.append(objective(rows, point))
    assert values[0] >= values[1] >= values[2]
    assert values[0] < objective(rows, rows.mean(0))


def test_an_impossible_tolerance_stalls_and_says_so() -> None:
    solution, _point = solve(gaussian(9, 5, dtype=torch.float64), tolerance=1e-300)
    assert solution.outcome is Outcome.STALLED
    assert solution.gap is not None
    assert solution.gap < 1e-12


def test_a_descent_that_rounding_stops_has_not_run_out_of_steps() -> None:
    """The last Newton step may promise less than nothing, which is no progress either."""
    for seed in range(100):
        rows = gaussian(15, 100, seed)
        rows[:6] *= 1e6
        solution, _ = solve(rows.bfloat16())
        assert solution.outcome is Outcome.STALLED
        assert solution.steps < 20


def test_nothing_is_certified_beyond_the_precision_of_the_products() -> None:
    """Float32 inner products cannot vouch for twelve digits of the objective; float64 ones can."""
    rows = gaussian(12, 200) + 0.5
    solution, _ = solve(rows, tolerance=1e-12)
    assert solution.outcome is Outcome.STALLED
    assert solution.gap is not None
    assert 1e-12 < solution.gap < 1e-9
    assert solve(rows.double(), tolerance=1e-12)[0].outcome is Outcome.CERTIFIED


def test_the_nearer_half_has_half_of_the_rows() -> None:
    for n in range(1, 41):
        ones = torch.ones(n, dtype=torch.float64)
        with naming(n, "rows"):
            assert float(nearer_half(ones, ones / n)) * n == pytest.approx(-(-n // 2))


def test_rows_are_not_blamed_for_a_median_on_another_row() -> None:
    rows = torch.tensor([[1.0, 1], [1, -1], [-1, 1], [-1, -1], [0.1, 0.05]])
    assert not GeometricMedian().aggregate(rows).rejected.any()


@pytest.mark.parametrize(
    ("n", "d", "distance"), [(25, 3, 10.0), (49, 10, 50.0), (81, 10, 50.0), (81, 100, 200.0)]
)
def test_a_crowd_of_equal_bad_rows_just_under_half_does_not_hold_the_solver(
    n: int, d: int, distance: float
) -> None:
    """The medoid is the crowd; from there full Newton steps overshoot and Weiszfeld's crawl."""
    for seed in range(4):
        rows = gaussian(n, d, seed, torch.float64)
        direction = gaussian(1, d, seed + 100, torch.float64)[0]
        rows[: (n - 1) // 2] = distance * direction / direction.norm()
        solution, point = solve(rows)
        assert solution.outcome is Outcome.CERTIFIED
        assert solution.steps <= 40
        assert float((point - rows[(n - 1) // 2 :].mean(0)).norm()) < distance


def test_the_middle_of_two_float32_rows() -> None:
    for seed in range(200):
        rows = gaussian(2, 5 + seed, seed)
        solution, point = solve(rows)
        assert solution.outcome is Outcome.CERTIFIED  # to the rounding of the middle
        torch.testing.assert_close(point, rows.mean(0))


def test_a_minority_of_the_weight_cannot_place_the_base_of_the_measurement() -> None:
    """Seven light rows near 1e30 are the majority by number.

    Seen from there, the heavy honest rows would coincide with 1e20.
    """
    far = 1e30 * (1 + 1e-3 * gaussian(7, 1).abs()) * torch.ones(7, 5)
    rows = torch.cat([gaussian(4, 5), far, torch.full((1, 5), 1e20)])
    weights = torch.tensor([1.0] * 4 + [0.1] * 7 + [1.0])
    assert float(GeometricMedian()(rows, row_weights=weights).norm()) < 20


@pytest.mark.parametrize("n", [3, 10, 20])
def test_one_column_with_far_rows(n: int) -> None:
    for seed in range(50):
        rows = gaussian(n, 1, seed)
        rows[: (n - 1) // 2] *= 1e6
        solution, _ = solve(rows)
        assert solution.outcome in (Outcome.EXACT, Outcome.CERTIFIED)


def test_the_smallest_float64_rows() -> None:
    rows = gaussian(5, 4, dtype=torch.float64) * 1e-310
    assert bool(torch.isfinite(GeometricMedian()(rows)).all())
