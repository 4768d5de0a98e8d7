from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import final

import torch
from torch import Tensor

from holdfast.aggregators._aggregator import equal_weights, rules
from holdfast.aggregators._bad_row_limit import BadRowLimit
from holdfast.aggregators._call import CallContext
from holdfast.aggregators._families import GramAggregator
from holdfast.checks import failure
from holdfast.geometry import Gram, Solution, least

MOST_DISTANCES = 100_000_000
"""Looking up this many distances takes a few seconds."""


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class MinimumDiameter(BadRowLimit, GramAggregator):
    r"""The mean of the :math:`n - f` rows with the least diameter (MDA).

    f is `n_bad` (or given by `bad_fraction`). A single pair of rows determines a diameter, so
    several subsets may share the least one; the rule takes the one with the smallest sum of squared
    distances. Resists f rows among :math:`n > 2f`. Reads the data twice. It enumerates all
    :math:`\binom{n}{f}` subsets on the Gram matrix, and raises an error if that would look up more
    than 100 million distances.

    Reference: El Mhamdi et al., *The Hidden Vulnerability of Distributed Learning in Byzantium*
    (ICML 2018), after Rousseeuw, *Multivariate estimation with high breakdown point* (1985).

    Example:
        >>> MinimumDiameter(n_bad=1)(torch.tensor([[1.0], [3.0], [2.0], [-80.0]]))
        tensor([2.])
    """

    name = "minimum-diameter"

    def _solve(self, gram: Gram, context: CallContext) -> Solution:
        n_bad = self.n_bad_left(gram.n, gram.n_lost)
        n_distances = comb(gram.n, n_bad) * comb(gram.n - n_bad, 2)
        if n_distances > MOST_DISTANCES:
            limit = f"leave at most {MOST_DISTANCES:,} distances within subsets of {gram.n} rows"
            raise failure("n_bad", limit, f"{n_bad} ({n_distances:,} distances)")
        members = torch.tensor(list(combinations(range(gram.n), gram.n - n_bad)))
        widest, total = _extents(gram.squared_distances, members)
        return Solution(equal_weights(members[least(widest, total)], gram.n))


def _extents(squared_distances: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
    """The squared diameter and the sum of squared distances of each subset [subsets, size]."""
    widest, total = torch.zeros(2, len(members), dtype=torch.float64)
    for i, j in combinations(range(members.shape[1]), 2):
        between = squared_distances[members[:, i], members[:, j]]
        widest = torch.maximum(widest, between)
        total = total + between
    return widest, total
