"""The paper's lemmas and theorems, stated so that they hold, on problems that can be checked.

Its Lemma 1 is about rows, so it is checked for the paper's own order. All others are about
iterates: they hold for "aggregate, then deliver" as well, with ``t``, what is owed, in place of
the mean over good rows, and here without a condition on the good rows.
"""

from functools import lru_cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from holdfast import RobustStep, SelectFirstStep, bgmd
from holdfast.geometry import DenseRows, Tiling
from holdfast.robust_step import MeanMemory, NoMemory, RowMemory, Step
from holdfast.seeds import stream
from holdfast.selectors import NormSampling, Selector, TopNorm, Uniform, row_norms
from holdfast.selectors._sampling import inclusion_probabilities
from tests.samples import gaussian


def residual(rows: Tensor, probabilities: Tensor) -> float:
    """E ||C_k(G) - G||^2 / ||G||^2, where columns are missing with one minus the probability."""
    squares = rows.double().square().sum(0)
    return float(((1 - probabilities) * squares).sum() / squares.sum())


def probabilities_of(rows: Tensor, k: int) -> Tensor:
    """Those of norm sampling over rows, by the paper's Algorithm 2."""
    norms, _ = row_norms(DenseRows(rows), Tiling((rows.shape[1],), 1), capped=False)
    return inclusion_probabilities(norms.square(), k)


# Lemma 1: norm sampling contracts by k / d at least.


@given(st.integers(1, 40), st.integers(1, 40), st.floats(0.0, 3.0), st.integers(0, 100))
def test_norm_sampling_contracts_by_the_share_of_columns(
    d: int, k: int, decades: float, seed: int
) -> None:
    k = min(k, d)
    sizes = 10 ** (decades * torch.rand(d, generator=stream(seed, "sizes"), dtype=torch.float64))
    rows = gaussian(5, d, seed, torch.float64) * sizes
    assert residual(rows, probabilities_of(rows, k)) <= 1 - k / d + 1e-9


@pytest.mark.parametrize("k", [1, 7, 40])
def test_and_by_no_more_when_all_columns_are_alike(k: int) -> None:
    rows = torch.ones(5, 40)
    assert residual(rows, probabilities_of(rows, k)) == pytest.approx(1 - k / 40, abs=1e-6)


def test_a_step_reports_the_residual_of_lemma_1() -> None:
    """The mean of the reported 1 - xi over many blocks is the expectation."""
    rows = gaussian(5, 60, dtype=torch.float64) * torch.arange(1.0, 61.0, dtype=torch.float64)
    selector = NormSampling(count=12, tile=1, capped=False)
    step = SelectFirstStep("mean", selector=selector, memory=NoMemory())
    found = torch.tensor([step(rows).residual for _ in range(400)], dtype=torch.float64)
    expected = residual(rows, probabilities_of(rows, 12))
    assert float((found.mean() - expected).abs()) <= 4.5 * float(found.std()) / 20
    assert expected < 1 - 12 / 60


@given(st.integers(1, 40), st.integers(1, 40), st.floats(0.0, 3.0), st.integers(0, 100))
def test_the_largest_entries_of_the_total_contract_surely(
    d: int, k: int, decades: float, seed: int
) -> None:
    """Delivered by `TopNorm`, the bound of Lemma 1 holds in every step, not only on average."""
    sizes = 10 ** (decades * torch.rand(d, generator=stream(seed, "sizes"), dtype=torch.float64))
    step = RobustStep("mean", selector=TopNorm(count=min(k, d), tile=1))
    for t in range(3):
        rows = gaussian(5, d, seed + t, torch.float64) * sizes
        assert step(rows, lr=0.1).residual <= 1 - min(k, d) / d + 1e-9


# Lemma 5: with the virtual iterates x~, x - x~ is what is carried.


@pytest.mark.parametrize("selector", [TopNorm(fraction=0.1), Uniform(fraction=0.1)], ids=repr)
@pytest.mark.parametrize("rule", ["geometric-median", "coordinate-median", "krum(n_bad=3)"])
def test_iterates_differ_from_the_virtual_ones_by_what_is_carried(
    rule: str, selector: Selector
) -> None:
    """For any rule: x~ moves by the whole aggregate at x; rates may change."""
    step = RobustStep(rule, selector=selector)
    x = virtual = torch.zeros(50, dtype=torch.float64)
    for t in range(40):
        lr = 0.2 / (1 + t)
        rows = x + gaussian(9, 50, t, torch.float64) + 1.0
        rows[:4] *= -100
        result = step(rows, lr=lr)
        x = x - lr * result.direction
        virtual = virtual - lr * result.aggregate.vector
        torch.testing.assert_close(x - virtual, step.state_dict()["carried"], rtol=1e-9, atol=1e-12)


# Lemma 3: with clean rows E ||m||^2 <= 4 (1 - xi^2) / xi^2 * lr^2 * sigma^2.


@pytest.mark.parametrize(
    "selector",
    [
        NormSampling(fraction=0.2, tile=1),
        Uniform(fraction=0.2, tile=1),
        TopNorm(fraction=0.2, tile=1),
    ],
    ids=repr,
)
@pytest.mark.parametrize("order", ["deliver", "select first"])
def test_what_clean_rows_leave_behind_is_bounded(order: str, selector: Selector) -> None:
    lr, xi = 0.3, 0.2
    step: Step = (
        RobustStep("geometric-median", selector=selector)
        if order == "deliver"
        else SelectFirstStep("geometric-median", selector=selector, memory=MeanMemory())
    )
    squares, sigma_squared = [], 0.0
    for t in range(200):
        rows = gaussian(7, 60, t, torch.float64) + 1.0
        sigma_squared = max(sigma_squared, float(rows.square().sum(1).mean()))
        squares.append(step(rows, lr=lr).carried_norm ** 2)
    assert sum(squares) / len(squares) <= 4 * (1 - xi**2) / xi**2 * lr**2 * sigma_squared


# Theorem 2: on a quadratic, which satisfies the Polyak-Lojasiewicz condition, linear convergence
# to a neighborhood.

CURVATURE = torch.linspace(0.5, 2.0, 40, dtype=torch.float64)


def squared_distance(
    *,
    noise: float = 1.0,
    lr: float = 0.1,
    fraction: float = 0.25,
    n_bad: int = 0,
    size: float = -100.0,
    n_steps: int = 150,
    decay: bool = False,
    seed: int = 0,
    start: float = 1.0,
) -> list[float]:
    """Squared distances from the minimum of 0.5 x^T diag(CURVATURE) x along a run of BGMD."""
    step = bgmd(fraction=fraction, generator=stream(seed, "step"))
    x = torch.full((40,), start, dtype=torch.float64)
    distances = []
    for t in range(n_steps):
        rows = CURVATURE * x + noise * gaussian(15, 40, 1000 * seed + t, torch.float64)
        rows[:n_bad] *= size
        rate = lr / (1 + 0.1 * lr * t) if decay else lr
        x = x - rate * step(rows, lr=rate).direction
        distances.append(float(x.square().sum()))
    return distances


@lru_cache
def neighborhood(**given: float) -> float:
    """The mean squared distance over the last half of the steps, over two seeds."""
    runs = [squared_distance(seed=seed, **given) for seed in range(2)]  # type: ignore[arg-type]
    return sum(sum(run[len(run) // 2 :]) / (len(run) // 2) for run in runs) / len(runs)


@pytest.mark.parametrize("n_bad", [0, 6])
def test_convergence_is_linear_without_noise(n_bad: int) -> None:
    """The logarithm of the distance falls by a steady amount, down to rounding."""
    run = squared_distance(noise=0.0, n_bad=n_bad, n_steps=500)
    assert run[99] < 0.3 * run[0]
    assert run[299] < 1e-2 * run[99]
    assert run[499] < 1e-2 * run[299]


def test_the_neighborhood_is_proportional_to_the_variance() -> None:
    assert neighborhood(noise=2.0) / neighborhood() == pytest.approx(4.0, rel=0.25)


def test_the_neighborhood_shrinks_with_the_learning_rate() -> None:
    assert neighborhood(lr=0.025, n_steps=300, start=0.3) < 0.6 * neighborhood()


def test_the_neighborhood_grows_no_faster_than_the_squared_share() -> None:
    """From all columns to a quarter, xi falls by four: the squared distance may grow by 16."""
    whole, quarter = neighborhood(fraction=1.0), neighborhood()
    assert whole * 0.9 < quarter < 16 * whole


def test_the_neighborhood_is_finite_below_one_half() -> None:
    """At every share of bad rows below one half, of any size; it grows with that share."""
    radii = [neighborhood(), neighborhood(n_bad=4), neighborhood(n_bad=7)]
    assert radii[0] < radii[-1] < 200 * radii[0]
    assert neighborhood(n_bad=7, size=-1e12) < 200 * radii[0]


def test_decaying_rates_converge_without_corruption() -> None:
    run = squared_distance(decay=True, lr=0.3, n_steps=800)
    assert sum(run[700:]) / 100 < 0.35 * sum(run[150:250]) / 100


# The special cases that the paper remarks on.


def one_row_steps(selector: Selector) -> dict[str, Step]:
    rule = "geometric-median"
    return {
        "deliver": RobustStep(rule, selector=selector),
        "mean": SelectFirstStep(rule, selector=selector, memory=MeanMemory()),
        "row": SelectFirstStep(rule, selector=selector, memory=RowMemory()),
        "none": SelectFirstStep(rule, selector=selector, memory=NoMemory()),
    }


@pytest.mark.parametrize("kind", ["deliver", "mean", "row", "none"])
def test_one_row_and_one_column_is_gauss_southwell(kind: str) -> None:
    """Every step moves one coordinate, that of the largest gradient or debt, by all of it."""
    step = one_row_steps(TopNorm(count=1, tile=1))[kind]
    x = gaussian(1, 12, dtype=torch.float64)[0]
    owed = torch.zeros(12, dtype=torch.float64)
    for _ in range(30):
        gradient = torch.linspace(1.0, 3.0, 12, dtype=torch.float64) * x
        total = gradient if kind == "none" else gradient + owed / 0.2
        largest = int(total.abs().argmax())
        expected = torch.zeros_like(x)
        expected[largest] = total[largest]
        direction = step(gradient[None], lr=0.2).direction
        torch.testing.assert_close(direction, expected)
        owed = 0.2 * (total - expected)
        x = x - 0.2 * direction


@pytest.mark.parametrize("kind", ["deliver", "mean", "row"])
@pytest.mark.parametrize(
    "selector", [NormSampling(fraction=0.3, tile=1), TopNorm(fraction=0.3, tile=1)], ids=repr
)
def test_one_row_is_error_feedback(kind: str, selector: Selector) -> None:
    """With one row both orders are the same: send a block of gradient plus error, keep the rest."""
    step = one_row_steps(selector)[kind]
    error = torch.zeros(20, dtype=torch.float64)
    for t in range(20):
        gradient, lr = gaussian(1, 20, t, torch.float64), 0.1 + 0.01 * t
        result = step(gradient, lr=lr)
        owed = lr * gradient[0] + error
        error = owed.clone()
        error[result.block.columns] = 0.0
        torch.testing.assert_close(lr * result.direction, owed - error)


# Lemma 2 (the choice of k) is about time, which `python -m benchmarks choice_of_k` measures. The
# number of columns is exact.


@settings(max_examples=20)
@given(st.floats(0.01, 1.0))
def test_the_block_has_the_share_of_columns_that_was_asked_for(fraction: float) -> None:
    block = bgmd(fraction=fraction)(gaussian(3, 500), lr=0.1).block
    assert len(block) == max(1, round(500 * fraction))
