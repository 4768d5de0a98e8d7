"""The paper's lemmas, with the memory for which its proof is written: that of the good workers.

The proof's m_t is a mean over good rows, which only their owners can keep. So here the lemmas hold
as they stand, for every rule, every block and every liar.
"""

from functools import lru_cache

import pytest
import torch
from torch import Tensor

from holdfast.exchange import AgreedBlock, WorkerMemory
from holdfast.seeds import stream
from tests.exchange.cases import Simulation, layout_of
from tests.samples import gaussian

D, TILE = 40, 4
CURVATURE = torch.linspace(0.5, 2.0, D, dtype=torch.float64)
RULE = f"blockwise(tile={TILE}) | geometric-median"


def simulation(
    n: int,
    *,
    send: float = 0.2,
    rule: str = RULE,
    min_wait: int | None = None,
    max_wait: int | None = None,
    report_every: int | None = 1,
) -> Simulation:
    layout = layout_of([(D,)], torch.float64)
    tiling = WorkerMemory(layout, tile=TILE).tiling
    agreed = AgreedBlock(
        tiling, send=send, min_wait=min_wait, max_wait=max_wait, report_every=report_every
    )
    return Simulation(layout, n, agreed, rule)


@pytest.mark.parametrize("rule", ["mean", RULE, "coordinate-median", "radius-filter"])
@pytest.mark.parametrize("lie", ["none", "far", "nan"])
def test_lemma_5_the_iterate_is_behind_by_the_mean_memory_of_good_workers(
    rule: str, lie: str
) -> None:
    """x_t - x~_t = m_t, where x~ moves by the mean good update plus the rule's perturbation."""
    n, n_bad, lr = 9, 4, 0.1
    this = simulation(n, rule=rule)
    virtual = this.layout.values()
    good = range(n_bad, n)
    lies = {"far": torch.full((D,), 7.0), "nan": torch.full((D,), torch.nan)}
    values = {} if lie == "none" else {i: lies[lie].double() for i in range(n_bad)}
    reports = {i: torch.full((D // TILE,), torch.nan).bfloat16() for i in values}
    for t in range(60):
        gradient = CURVATURE * (this.layout.values() - 1.0)
        given = lr * (gradient + gaussian(n, D, t, torch.float64))
        sums = torch.stack([this.memories[i].vector + given[i] for i in good])
        block, direction = this.round(given, reports=reports, values=values)
        perturbation = torch.zeros(D, dtype=torch.float64)
        perturbation[block.columns] = direction - sums.mean(0)[block.columns]
        virtual = virtual - given[n_bad:].mean(0) - perturbation
        memory = torch.stack([this.memories[i].vector for i in good]).mean(0)
        torch.testing.assert_close(this.layout.values() - virtual, memory, rtol=0, atol=1e-12)


@pytest.mark.parametrize("send", [0.1, 0.3])
def test_lemma_3_the_memory_is_bounded_in_expectation(send: float) -> None:
    r"""With a random block: E||r||^2 <= 4 (1 - xi^2) / xi^2 * E||u||^2, with xi = k/d."""
    n, lr = 6, 0.1
    this = simulation(n, send=send, report_every=None, min_wait=1, max_wait=10**6)
    squares, largest = [], 0.0
    for t in range(300):
        given = lr * (gaussian(n, D, t, torch.float64) + 1.0)
        largest = max(largest, float(given.square().sum(1).mean()))
        this.round(given)
        squares += [float(memory.vector.square().sum()) for memory in this.memories]
    assert sum(squares) / len(squares) <= 4 * (1 - send**2) / send**2 * largest


@pytest.mark.parametrize("lie", [torch.nan, 1e38, 0.0])
def test_the_memory_is_bounded_surely_by_the_longest_wait(lie: float) -> None:
    """Every column is the sum of at most `longest_wait` updates, whatever a minority reports."""
    n, n_bad = 7, 3
    this = simulation(n, send=0.1, max_wait=15)
    reports = {i: torch.full((D // TILE,), lie).bfloat16() for i in range(n_bad)}
    for i in reports:  # they starve one tile
        reports[i][3] = 0.0
    longest = this.agreed.longest_wait
    for t in range(200):
        given = torch.rand(n, D, generator=stream(t, "bounded")).double()
        given[:, 12:16] *= 1e-3  # which honest workers want least, too
        this.round(given, reports=reports)
        for memory in this.memories:
            assert float(memory.vector.max()) <= longest


def squared_distances(
    *,
    n: int = 15,
    n_bad: int = 0,
    noise: float = 1.0,
    lr: float = 0.05,
    send: float = 0.2,
    lie: float = -100.0,
    n_rounds: int = 150,
    start: float = 0.1,
    seed: int = 0,
) -> list[float]:
    """Squared distances from the minimum of 0.5 x^T diag(CURVATURE) x along a run."""
    this = simulation(n, send=send)
    this.layout.write_values(torch.full((D,), start, dtype=torch.float64))
    reports = {i: torch.full((D // TILE,), torch.nan).bfloat16() for i in range(n_bad)}
    found = []
    for t in range(n_rounds):
        x = this.layout.values()
        given = lr * (CURVATURE * x + noise * gaussian(n, D, 1000 * seed + t, torch.float64))
        values: dict[int, Tensor] = {i: lie * given[n_bad:].mean(0) for i in range(n_bad)}
        this.round(given, reports=reports, values=values)
        found.append(float(this.layout.values().square().sum()))
    return found


@lru_cache
def neighborhood(**given: float) -> float:
    """The mean squared distance over the last half of the rounds."""
    run = squared_distances(**given)  # type: ignore[arg-type]
    return sum(run[len(run) // 2 :]) / (len(run) // 2)


@pytest.mark.parametrize("n_bad", [0, 5])
def test_convergence_is_linear_without_noise(n_bad: int) -> None:
    run = squared_distances(noise=0.0, n_bad=n_bad, n=11, n_rounds=360)
    assert run[119] < 0.1 * run[0]
    assert run[239] < 0.1 * run[119]
    assert run[359] < 0.1 * run[239]


def test_the_neighborhood_grows_with_the_variance_and_shrinks_with_the_workers() -> None:
    assert neighborhood(noise=2.0) / neighborhood() == pytest.approx(4.0, rel=0.25)
    assert neighborhood(n=45) < 0.6 * neighborhood()


def test_the_neighborhood_grows_slowly_as_less_is_sent() -> None:
    """From everything to a tenth; the paper allows a factor of (d / k)^2."""
    whole, tenth = neighborhood(send=1.0), neighborhood(send=0.1)
    assert 0.5 * whole < tenth < 10 * whole


@pytest.mark.parametrize("lie", [-1.0, 1e12, torch.nan])
def test_it_is_finite_at_every_share_of_liars_below_one_half(lie: float) -> None:
    assert neighborhood() < neighborhood(n_bad=7, lie=lie) < 200 * neighborhood()
