from dataclasses import dataclass
from math import inf
from typing import final

import torch

from holdfast.aggregators._aggregator import ROW_WEIGHTS, Given
from holdfast.aggregators._families import GramAggregator
from holdfast.checks import check_count
from holdfast.geometry import Gram, Outcome, Solution, principal_scores


@final
@dataclass(frozen=True, kw_only=True)
class CovarianceFilter(GramAggregator):
    r"""The weighted mean whose rows vary least in their worst direction, among those a spectral reweighting passes through (CAF).

    Every row starts with :math:`c_i = 1`. While :math:`\sum_i c_i > n - 2f`, take the weighted mean :math:`\mu` and the largest variance
    :math:`\lambda` with its direction v, remember :math:`\mu` if :math:`\lambda` is the smallest yet, and set
    :math:`c_i \leftarrow c_i (1 - \tau_i / \tau_{\max})` with :math:`\tau_i = \langle g_i - \mu, v \rangle^2`. f is `n_bad`; left out, it is the largest
    minority, and the rule needs to be told nothing. `row_weights` count as that many rows. Resists `n_bad` rows among
    :math:`n > 2f`. Reads the data twice, and solves at most n eigenproblems of size n.

    Reference: Allouah, Guerraoui and Stephan, *Towards Trustworthy Federated Learning with Untrusted Participants* (2025),
    Algorithm 2, in the form of the ByzFL library's CAF.

    Example:
        >>> CovarianceFilter()(torch.tensor([[1.0, 0.0], [3.0, 0.0], [2.0, 0.0], [2.0, 90.0], [2.0, 91.0]]))
        tensor([2., 0.])
    """

    n_bad: int | None = None

    name = "covariance-filter"
    takes = ROW_WEIGHTS

    def __post_init__(self) -> None:
        if self.n_bad is not None:
            check_count("n_bad", self.n_bad)

    @property
    def n_needed(self) -> int:
        return 1 if self.n_bad is None else 2 * self.n_bad + 1

    def _n_resisted(self, n: int) -> int:
        return (n - 1) // 2 if self.n_bad is None else self.n_bad

    def _solve(self, gram: Gram, given: Given) -> Solution:
        shares = given.weights_of(gram.n) * gram.n
        n_bad = gram.n_bad_left(self.n_resisted(gram.n + gram.n_lost))
        trust = torch.ones_like(shares)
        best, smallest, steps = trust, inf, 0
        while float((shares * trust).sum()) > gram.n - 2 * n_bad:
            variance, scores = principal_scores(gram, shares * trust)
            if variance < smallest:
                best, smallest = trust, variance
            if variance == 0.0:
                break
            trusted = torch.where(trust > 0, scores, 0.0)
            trust = trust * (1 - trusted / trusted.max())
            steps += 1
        weights = shares * best
        return Solution(weights / weights.sum(), Outcome.FINISHED, steps)
