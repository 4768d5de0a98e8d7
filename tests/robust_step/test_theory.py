"""The paper's lemmas and theorems, stated so that they hold, on problems small enough to check them."""

import pytest
import torch
from holdfast.memory import AugmentedRows, MeanMemory, Memory, NoMemory, RobustMemory, RowMemory
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from holdfast import RobustStep, bgmd
from holdfast.aggregators import GeometricMedian
from holdfast.geometry import DenseRows, Tiling
from holdfast.seeds import stream
from holdfast.selectors import NormSampling, Selector, TopNorm, Uniform
from holdfast.selectors._sampling import inclusion_probabilities
from tests.samples import gaussian


def residual(rows: Tensor, probabilities: Tensor) -> float:
    """E ||C_k(G) - G||^2 / ||G||^2: every column is missing with what its probability lacks to one."""
    squares = rows.double().square().sum(0)
    return float(((1 - probabilities) * squares).sum() / squares.sum())


# Lemma 1: norm sampling contracts by k / d at least.


@given(st.integers(1, 40), st.integers(1, 40), st.floats(0.0, 3.0), st.integers(0, 100))
def test_norm_sampling_contracts_by_the_share_of_columns(
    d: int, k: int, decades: float, seed: int
) -> None:
    k = min(k, d)
    sizes = 10 ** (decades * torch.rand(d, generator=stream(seed, "sizes"), dtype=torch.float64))
    rows = gaussian(5, d, seed, torch.float64) * sizes
    scores = AugmentedRows(DenseRows(rows)).scores(Tiling((d,), 1), capped=False)
    assert residual(rows, inclusion_probabilities(scores, k)) <= 1 - k / d + 1e-9


@pytest.mark.parametrize("k", [1, 7, 40])
def test_and_by_no_more_when_all_columns_are_alike(k: int) -> None:
    rows = torch.ones(5, 40)
    scores = AugmentedRows(DenseRows(rows)).scores(Tiling((40,), 1), capped=False)
    assert residual(rows, inclusion_probabilities(scores, k)) == pytest.approx(1 - k / 40, abs=1e-6)


def test_a_step_reports_the_residual_of_lemma_1() -> None:
    """The mean of the reported 1 - xi over many blocks is the expectation."""
    rows = gaussian(5, 60, dtype=torch.float64) * torch.arange(1.0, 61.0, dtype=torch.float64)
    selector = NormSampling(count=12, tile=1, capped=False)
    step = RobustStep(GeometricMedian(), selector=selector, memory=NoMemory())
    found = torch.tensor([step(rows).residual for _ in range(400)], dtype=torch.float64)
    expected = residual(rows, inclusion_probabilities(rows.square().sum(0), 12))
    assert float((found.mean() - expected).abs()) <= 4.5 * float(found.std()) / 20
    assert expected < 1 - 12 / 60


# Lemma 5: with the virtual iterates x~, x - x~ is the memory. It holds exactly for the robust memory.


@pytest.mark.parametrize(
    "rates", [[0.1] * 40, [0.2 / (1 + t) for t in range(40)]], ids=["constant", "decaying"]
)
def test_iterates_differ_from_the_virtual_ones_by_the_memory(rates: list[float]) -> None:
    step = bgmd(fraction=0.1, tile=1)
    x = virtual = torch.zeros(50, dtype=torch.float64)
    for t, lr in enumerate(rates):
        rows = x + gaussian(9, 50, t, torch.float64) + 1.0
        rows[:4] *= -100
        result = step(rows, lr=lr)
        assert result.weights is not None
        x = x - lr * result.direction
        virtual = virtual - lr * (result.weights @ rows)
        torch.testing.assert_close(x - virtual, step.state_dict()["carried"], rtol=1e-9, atol=1e-12)


# Lemma 3: on clean rows the memory stays bounded: E ||m||^2 <= 4 (1 - xi^2) / xi^2 * lr^2 * sigma^2.


@pytest.mark.parametrize("memory", [RobustMemory(), MeanMemory()], ids=repr)
@pytest.mark.parametrize(
    "selector", [NormSampling(fraction=0.2, tile=1), Uniform(fraction=0.2, tile=1)], ids=repr
)
def test_the_memory_of_clean_rows_stays_bounded(memory: Memory, selector: Selector) -> None:
    step, lr, xi = RobustStep(GeometricMedian(), selector=selector, memory=memory), 0.3, 0.2
    squares, sigma_squared = [], 0.0
    for t in range(400):
        rows = gaussian(7, 60, t, torch.float64) + 1.0
        sigma_squared = max(sigma_squared, float(rows.square().sum(1).mean()))
        squares.append(step(rows, lr=lr).carried_norm ** 2)
    assert sum(squares) / len(squares) <= 4 * (1 - xi**2) / xi**2 * lr**2 * sigma_squared


# Theorem 2: on a quadratic, which satisfies the Polyak-Lojasiewicz condition, linear convergence to a neighbourhood.

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
    """Squared distances from the minimum along a run of BGMD on 0.5 x^T diag(CURVATURE) x, with 15 noisy rows a step."""
    step, x = (
        bgmd(fraction=fraction, tile=1, generator=stream(seed, "step")),
        torch.full((40,), start, dtype=torch.float64),
    )
    distances = []
    for t in range(n_steps):
        rows = CURVATURE * x + noise * gaussian(15, 40, 1000 * seed + t, torch.float64)
        rows[:n_bad] *= size
        rate = lr / (1 + 0.1 * lr * t) if decay else lr
        x = x - rate * step(rows, lr=rate).direction
        distances.append(float(x.square().sum()))
    return distances


def neighbourhood(**given: float) -> float:
    """The mean squared distance over the last half of the steps, over two seeds."""
    runs = [squared_distance(seed=seed, **given) for seed in range(2)]  # type: ignore[arg-type]
    return sum(sum(run[len(run) // 2 :]) / (len(run) // 2) for run in runs) / len(runs)


def test_convergence_is_linear_without_noise() -> None:
    """The logarithm of the distance falls by a steady amount, down to rounding."""
    for n_bad in (0, 6):
        run = squared_distance(noise=0.0, n_bad=n_bad, n_steps=500)
        assert run[99] < 0.3 * run[0]
        assert run[299] < 1e-2 * run[99]
        assert run[499] < 1e-2 * run[299]


def test_the_neighbourhood_is_proportional_to_the_variance() -> None:
    assert neighbourhood(noise=2.0) / neighbourhood(noise=1.0) == pytest.approx(4.0, rel=0.25)


def test_the_neighbourhood_shrinks_with_the_learning_rate() -> None:
    assert neighbourhood(lr=0.025, n_steps=400, start=0.3) < 0.6 * neighbourhood(lr=0.1)


def test_the_neighbourhood_grows_no_faster_than_the_squared_share() -> None:
    """From blocks of all columns to a quarter of them, xi falls by four: the squared distance may grow by sixteen."""
    whole, quarter = neighbourhood(fraction=1.0), neighbourhood(fraction=0.25)
    assert whole * 0.9 < quarter < 16 * whole


def test_the_neighbourhood_is_finite_below_one_half() -> None:
    """At every share of bad rows below one half, of any size; it grows with alpha = bad / good."""
    radii = [neighbourhood(n_bad=n_bad) for n_bad in (0, 4, 7)]
    assert radii[0] < radii[-1] < 200 * radii[0]
    assert neighbourhood(n_bad=7, size=-1e12) < 200 * radii[0]


def test_decaying_rates_converge_without_corruption() -> None:
    run = squared_distance(decay=True, lr=0.3, n_steps=800)
    assert sum(run[700:]) / 100 < 0.35 * sum(run[150:250]) / 100


# The special cases that the paper remarks on.


@pytest.mark.parametrize("memory", [NoMemory(), MeanMemory()], ids=repr)
def test_one_row_and_one_column_is_gauss_southwell(memory: Memory) -> None:
    """With one row and the largest column, every step moves the coordinate of the largest (owed) gradient by all of it."""
    step, x = (
        RobustStep(GeometricMedian(), selector=TopNorm(count=1, tile=1), memory=memory),
        gaussian(1, 12, dtype=torch.float64)[0],
    )
    owed = torch.zeros(12, dtype=torch.float64)
    for _ in range(30):
        gradient = torch.linspace(1.0, 3.0, 12, dtype=torch.float64) * x
        total = gradient + owed / 0.2 if isinstance(memory, MeanMemory) else gradient
        largest = int(total.abs().argmax())
        direction = step(gradient[None], lr=0.2).direction
        expected = torch.zeros_like(x)
        expected[largest] = total[largest]
        torch.testing.assert_close(direction, expected)
        owed = 0.2 * (total - expected)
        x = x - 0.2 * direction


@pytest.mark.parametrize("memory", [RobustMemory(), MeanMemory(), RowMemory()], ids=repr)
def test_one_row_is_error_feedback(memory: Memory) -> None:
    """With one row every memory is the same: send the block of gradient plus error, keep the rest as the next error."""
    step = RobustStep(GeometricMedian(), selector=NormSampling(fraction=0.3, tile=1), memory=memory)
    error = torch.zeros(20, dtype=torch.float64)
    for t in range(20):
        gradient, lr = gaussian(1, 20, t, torch.float64), 0.1 + 0.01 * t
        result = step(gradient, lr=lr)
        owed = lr * gradient[0] + error
        error = owed.clone()
        error[result.block.columns] = 0.0
        torch.testing.assert_close(lr * result.direction, owed - error)


# Lemma 2 (the choice of k) is a statement about time: `python -m benchmarks choice_of_k` measures it. Its operation count is exact.


@settings(max_examples=20)
@given(st.floats(0.01, 1.0))
def test_the_block_has_the_share_of_columns_that_was_asked_for(fraction: float) -> None:
    block = bgmd(fraction=fraction, tile=1)(gaussian(3, 500), lr=0.1).block
    assert len(block) == max(1, round(500 * fraction))
