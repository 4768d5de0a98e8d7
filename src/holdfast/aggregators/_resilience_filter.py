from dataclasses import dataclass
from typing import final

import torch

from holdfast.aggregators._aggregator import rules
from holdfast.aggregators._call import ROW_WEIGHTS, CallContext
from holdfast.aggregators._families import GramAggregator
from holdfast.checks import check_positive
from holdfast.geometry import Gram, Outcome, PrincipalScores, Solution


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class ResilienceFilter(GramAggregator):
    r"""The mean of the rows that remain once `sigma` bounds their deviation in every direction.

    Every row starts with :math:`c_i = 1`. While :math:`\sum_i c_i \tau_i > 4 n \sigma^2`, where
    :math:`\tau_i` is the squared deviation of row i from the weighted mean along the direction of
    largest weighted variance, set :math:`c_i \leftarrow c_i (1 - \tau_i / \tau_{\max})`; rows that
    fall below :math:`c_i = 1/2` are removed. Returns the mean of the others. Weights of rows count
    as numbers of rows. Resists a quarter of the rows if `sigma` bounds the deviation of the good
    rows in every direction. If `sigma` is too small for the rows, the filter stops while half of
    them are left, and the outcome reports it. Reads the data twice.

    Reference: Steinhardt, Charikar and Valiant, *Resilience: A Criterion for Learning in the
    Presence of Arbitrary Outliers* (ITCS 2018), Algorithm 1; Data and Diggavi, *Byzantine-Resilient
    SGD in High Dimensions on Heterogeneous Data* (2020), Algorithm 2. Deviation: the saddle point
    over (Y, W) is taken at W = weighted mean, Y = top eigenvector, as in later work.

    Example:
        >>> ResilienceFilter(sigma=1.0)(torch.tensor([[1.0], [2.0], [3.0], [2.0], [90.0]]))
        tensor([2.])
    """

    sigma: float

    name = "resilience-filter"
    n_needed = 1
    takes = ROW_WEIGHTS

    def __post_init__(self) -> None:
        check_positive("sigma", self.sigma)

    def _n_resisted(self, n: int) -> int:
        return n // 4

    def _solve(self, gram: Gram, context: CallContext) -> Solution:
        shares = context.weights_of(gram.n)
        sigma = self.sigma / gram.unit
        bound = 4 * sigma * sigma  # overflows to infinity, where a power would raise
        scores_of = PrincipalScores(gram)
        trust = torch.ones_like(shares)
        kept = trust >= 0.5
        outcome = Outcome.FINISHED
        step = 0
        while True:
            variance, scores = scores_of(shares * trust * kept)
            if variance * float((shares * trust * kept).sum()) <= bound:
                break
            trust = trust * (1 - torch.where(kept, scores, 0.0) / scores[kept].max())
            # Exactly half of the weight is enough, up to rounding.
            if float(shares[trust >= 0.5].sum()) < 0.5 * (1 - 1e-12):
                outcome = Outcome.BOUND_NOT_MET
                break
            kept = trust >= 0.5
            step += 1
        weights = shares * kept
        return Solution(weights / weights.sum(), outcome, step)
