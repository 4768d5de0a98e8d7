from dataclasses import dataclass
from typing import final

import torch

from holdfast.aggregators._aggregator import rules
from holdfast.aggregators._bad_row_limit import BadRowLimit
from holdfast.aggregators._call import ROW_WEIGHTS, CallContext
from holdfast.aggregators._families import GramAggregator
from holdfast.checks import check_positive
from holdfast.geometry import Gram, Outcome, PrincipalScores, Solution


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class SpectralFilter(BadRowLimit, GramAggregator):
    r"""The mean after f rounds that drop the row farthest out along the largest variance.

    f is `n_bad` (or given by `bad_fraction`). A round centers the remaining rows, finds the top
    eigenvector v of their covariance, scores each row by
    :math:`\tau_i = \langle g_i - \mu, v \rangle^2` and drops the row with the highest score. With
    `sigma` it stops as soon as the variance along v is at most :math:`\sigma^2`. `row_weights`
    enter mean and covariance; f still counts rows. Resists f rows among :math:`n > 2f`: rows that
    could move the mean far dominate the covariance and are dropped. Reads the data twice.

    Reference: Diakonikolas et al., *Sever: A Robust Meta-Algorithm for Stochastic Optimization*
    (ICML 2019), Algorithms 1 and 2. Deviation: their score aggregates one set of rows, without
    refitting; one row per round instead of a random threshold, so that the result is deterministic.

    Example:
        >>> SpectralFilter(n_bad=1)(torch.tensor([[1.0, 0.0], [3.0, 0.0], [2.0, 90.0]]))
        tensor([2., 0.])
    """

    sigma: float | None = None

    name = "spectral-filter"
    takes = ROW_WEIGHTS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sigma is not None:
            check_positive("sigma", self.sigma)

    def _solve(self, gram: Gram, context: CallContext) -> Solution:
        weights = context.weights_of(gram.n).clone()
        sigma = (self.sigma or 0.0) / gram.unit
        bound = sigma * sigma  # overflows to infinity, where a power would raise
        n_rounds = self.n_bad_left(gram.n, gram.n_lost)
        scores_of = PrincipalScores(gram)
        for round_ in range(n_rounds):
            variance, scores = scores_of(weights)
            if variance <= bound:
                return Solution(weights / weights.sum(), Outcome.FINISHED, round_)
            weights[int(torch.where(weights > 0, scores, -1.0).argmax())] = 0.0
        return Solution(weights / weights.sum(), Outcome.FINISHED, n_rounds)
