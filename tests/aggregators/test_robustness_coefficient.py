r"""The (f, kappa) inequality of Allouah et al. 2023 for the rules that promise it.

For every set S of n - f rows, whatever the others hold:
:math:`\|A(G) - \bar g_S\|^2 \le \kappa \cdot \frac{1}{|S|} \sum_S \|g_i - \bar g_S\|^2`.
"""

from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from holdfast.aggregators import (
    Aggregator,
    CoordinateMedian,
    GeometricMedian,
    Krum,
    NearestNeighborMixing,
    TrimmedMean,
)
from tests.samples import gaussian


def kappa(rule: Aggregator, n: int, f: int) -> float:
    ratio = f / (n - 2 * f)
    if isinstance(rule, NearestNeighborMixing):
        return 8 * f / (n - f) * (kappa(rule.inner, n, f) + 1)
    if isinstance(rule, TrimmedMean):
        return 6 * ratio * (1 + ratio)
    if isinstance(rule, Krum):
        return 6 * (1 + ratio)
    return 4 * (1 + ratio) ** 2


def promising(f: int) -> list[Aggregator]:
    plain: list[Aggregator] = [
        TrimmedMean(n_bad=f),
        Krum(n_bad=f),
        GeometricMedian(),
        CoordinateMedian(),
    ]
    return plain + [NearestNeighborMixing(n_bad=f, rule=rule) for rule in plain]


def worst_ratio(rule: Aggregator, rows: Tensor, f: int) -> float:
    """The largest observed kappa over all choices of the honest rows."""
    vector, worst = rule(rows), 0.0
    for members in combinations(range(len(rows)), len(rows) - f):
        honest = rows[list(members)]
        variance = float((honest - honest.mean(0)).square().sum(1).mean())
        error = float((vector - honest.mean(0)).square().sum())
        worst = max(worst, error / variance if variance > 0 else 0.0)
    return worst


ATTACKS = {
    "none": lambda bad, honest: bad,
    "far": lambda bad, honest: 1e6 * bad,
    "a little": lambda bad, honest: (honest.mean(0) - 1.5 * honest.std(0)).expand_as(bad),
    "inner product": lambda bad, honest: (-0.5 * honest.mean(0)).expand_as(bad),
    "near the farthest": lambda bad, honest: honest[honest.norm(dim=1).argmax()] + 0.01 * bad,
}


@pytest.mark.parametrize("attack", ATTACKS)
@given(d=st.integers(1, 6), f=st.integers(1, 2), seed=st.integers(0, 1000))
def test_inequality(attack: str, d: int, f: int, seed: int) -> None:
    n = 2 * f + 3 + seed % 3
    rows = gaussian(n, d, seed, torch.float64)
    rows[:f] = ATTACKS[attack](rows[:f].clone(), rows[f:])
    for rule in promising(f):
        assert worst_ratio(rule, rows, f) <= kappa(rule, n, f) * (1 + 1e-9)


def test_the_mean_breaks_the_inequality() -> None:
    """The check can fail: what promises nothing keeps nothing."""
    from holdfast.aggregators import Mean

    rows = gaussian(7, 3, 0, torch.float64)
    rows[0] = 1e6
    assert worst_ratio(Mean(), rows, 1) > 1e3
