from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import final

import torch
from torch import Tensor

from holdfast.aggregators._aggregator import Given, equal_weights
from holdfast.aggregators._families import GramAggregator
from holdfast.checks import check_count, failure
from holdfast.geometry import Gram, Solution

MOST_DISTANCES = 100_000_000
"""Looking up this many distances takes some seconds."""


@final
@dataclass(frozen=True, kw_only=True)
class MinimumDiameter(GramAggregator):
    r"""The mean of the :math:`n - f` rows that lie closest together: the subset of least diameter (MDA). f is `n_bad`.

    One pair of rows decides a diameter, so several subsets may share the least one; the rule takes that with the smallest sum of
    squared distances. Resists `n_bad` rows among :math:`n > 2f`. Reads the data twice, but enumerates all :math:`\binom{n}{f}` subsets on the Gram
    matrix, and refuses where that would look up more than 100 million distances.

    Reference: El Mhamdi et al., *The Hidden Vulnerability of Distributed Learning in Byzantium* (ICML 2018), after Rousseeuw,
    *Multivariate estimation with high breakdown point* (1985).

    Example:
        >>> MinimumDiameter(n_bad=1)(torch.tensor([[1.0], [3.0], [2.0], [-80.0]]))
        tensor([2.])
    """

    n_bad: int

    name = "minimum-diameter"

    def __post_init__(self) -> None:
        check_count("n_bad", self.n_bad)

    @property
    def n_needed(self) -> int:
        return 2 * self.n_bad + 1

    def _n_resisted(self, n: int) -> int:
        return self.n_bad

    def _solve(self, gram: Gram, given: Given) -> Solution:
        n_bad = gram.n_bad_left(self.n_bad)
        n_distances = comb(gram.n, n_bad) * comb(gram.n - n_bad, 2)
        if n_distances > MOST_DISTANCES:
            limit = f"leave at most {MOST_DISTANCES:,} distances within subsets of {gram.n} rows"
            raise failure("n_bad", limit, f"{n_bad} ({n_distances:,} distances)")
        members = torch.tensor(list(combinations(range(gram.n), gram.n - n_bad)))
        widest, total = _extents(gram.squared_distances, members)
        tied = widest <= widest.min() * (1 + 1e-12)
        return Solution(
            equal_weights(members[int(torch.where(tied, total, torch.inf).argmin())], gram.n)
        )


def _extents(squared_distances: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
    """The squared diameter and the sum of squared distances of each subset [subsets, size]."""
    widest, total = torch.zeros(2, len(members), dtype=torch.float64)
    for i, j in combinations(range(members.shape[1]), 2):
        between = squared_distances[members[:, i], members[:, j]]
        widest = torch.maximum(widest, between)
        total = total + between
    return widest, total
