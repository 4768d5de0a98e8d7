from dataclasses import dataclass
from typing import final

import torch

from holdfast.aggregators._aggregator import ROW_WEIGHTS, Given
from holdfast.aggregators._families import GramAggregator
from holdfast.checks import check_count, check_positive
from holdfast.geometry import Gram, Outcome, Solution, principal_scores


@final
@dataclass(frozen=True, kw_only=True)
class SpectralFilter(GramAggregator):
    r"""The mean of the rows after `n_bad` rounds that each drop the row farthest out along the direction of largest variance.

    A round centres the rows that are left, finds the top eigenvector v of their covariance, scores each row by
    :math:`\tau_i = \langle g_i - \mu, v \rangle^2` and drops the highest score. With `sigma` it stops as soon as the variance along v
    is at most :math:`\sigma^2`. `row_weights` enter mean and covariance; `n_bad` still counts rows. Resists `n_bad` rows among :math:`n > 2f`: rows that could
    carry the mean away dominate the covariance and are dropped. Reads the data twice.

    Reference: Diakonikolas et al., *Sever: A Robust Meta-Algorithm for Stochastic Optimization* (ICML 2019), Algorithms 1
    and 2. Deviation: their score, used to aggregate one set of rows instead of refitting; one row a round, so that the result
    is deterministic, instead of a random threshold.

    Example:
        >>> SpectralFilter(n_bad=1)(torch.tensor([[1.0, 0.0], [3.0, 0.0], [2.0, 90.0]]))
        tensor([2., 0.])
    """

    n_bad: int
    sigma: float | None = None

    name = "spectral-filter"
    takes = ROW_WEIGHTS

    def __post_init__(self) -> None:
        check_count("n_bad", self.n_bad)
        if self.sigma is not None:
            check_positive("sigma", self.sigma)

    @property
    def n_needed(self) -> int:
        return 2 * self.n_bad + 1

    def _n_resisted(self, n: int) -> int:
        return self.n_bad

    def _solve(self, gram: Gram, given: Given) -> Solution:
        weights = given.weights_of(gram.n).clone()
        sigma = (self.sigma or 0.0) / gram.unit
        bound = sigma * sigma  # a power would raise where a product overflows to infinity
        n_rounds = gram.n_bad_left(self.n_bad)
        for round_ in range(n_rounds):
            variance, scores = principal_scores(gram, weights)
            if variance <= bound:
                return Solution(weights / weights.sum(), Outcome.FINISHED, round_)
            weights[int(torch.where(weights > 0, scores, -1.0).argmax())] = 0.0
        return Solution(weights / weights.sum(), Outcome.FINISHED, n_rounds)
