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

MOST_WORK = 1_000_000_000
"""Subsets times the cube of their size: a few seconds of eigenvalues."""

CHUNK = 4096
"""Subsets whose matrices are formed at a time."""


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class MinimumVariance(BadRowLimit, GramAggregator):
    r"""The mean of the :math:`n - f` rows with the least largest variance (SMEA).

    Of all subsets of :math:`n - f` rows, takes the one whose covariance has the smallest top
    eigenvalue; of equal ones, the one with the smallest total variance. f is `n_bad` (or given by
    `bad_fraction`). Resists f rows among :math:`n > 2f`. Reads the data twice. It solves
    :math:`\binom{n}{f}` eigenproblems on the Gram matrix, and raises an error if these would take
    more than a few seconds; :class:`CovarianceFilter` approximates it in polynomial time.

    Reference: Allouah et al., *On the Privacy-Robustness-Utility Trilemma in Distributed Learning*
    (ICML 2023), Section 4.2.

    Example:
        >>> MinimumVariance(n_bad=1)(torch.tensor([[1.0], [3.0], [2.0], [-80.0]]))
        tensor([2.])
    """

    name = "minimum-variance"

    def _solve(self, gram: Gram, context: CallContext) -> Solution:
        n_bad = self.n_bad_left(gram.n, gram.n_lost)
        work = comb(gram.n, n_bad) * (gram.n - n_bad) ** 3
        if work > MOST_WORK:
            limit = f"leave at most {MOST_WORK:,} operations for subsets of {gram.n} rows"
            raise failure("n_bad", limit, f"{n_bad} ({work:,} operations)")
        members = torch.tensor(list(combinations(range(gram.n), gram.n - n_bad)))
        products = gram.products[: gram.n, : gram.n]
        found = [_variances(products, some) for some in torch.split(members, CHUNK)]
        largest, total = (torch.cat(part) for part in zip(*found, strict=True))
        return Solution(equal_weights(members[least(largest, total)], gram.n))


def _variances(products: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
    """The largest and the total variance, times their size, of subsets [subsets, size]."""
    chosen = products[members[:, :, None], members[:, None, :]]
    # The d x d covariance has the nonzero eigenvalues of the centered Gram matrix, over the size.
    centered = chosen - chosen.mean(1, keepdim=True)
    centered = centered - centered.mean(2, keepdim=True)
    largest = torch.linalg.eigvalsh(centered)[:, -1].clamp(min=0)
    return largest, centered.diagonal(dim1=1, dim2=2).sum(1)
