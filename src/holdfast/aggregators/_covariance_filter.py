from dataclasses import dataclass
from math import inf
from typing import final

import torch

from holdfast.aggregators._aggregator import rules
from holdfast.aggregators._bad_row_limit import BadRowLimit
from holdfast.aggregators._call import ROW_WEIGHTS, CallContext
from holdfast.aggregators._families import GramAggregator
from holdfast.geometry import Gram, Outcome, Solution, principal_scores


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class CovarianceFilter(BadRowLimit, GramAggregator):
    r"""The weighted mean with the least largest variance along a spectral reweighting (CAF).

    Every row starts with :math:`c_i = 1`. While :math:`\sum_i c_i > n - 2f`, take the weighted mean
    :math:`\mu` and the largest variance :math:`\lambda` with its direction v, keep :math:`\mu` if
    :math:`\lambda` is the smallest so far, and set
    :math:`c_i \leftarrow c_i (1 - \tau_i / \tau_{\max})` with
    :math:`\tau_i = \langle g_i - \mu, v \rangle^2`. f is `n_bad` or given by `bad_fraction`;
    without both it is the largest minority, so that nothing need be known. Weights of rows count as
    numbers of rows. Resists f rows among :math:`n > 2f`. Reads the data twice, and solves at most n
    eigenproblems of size n.

    Reference: Allouah, Guerraoui and Stephan, *Towards Trustworthy Federated Learning with
    Untrusted Participants* (2025), Algorithm 2, in the form of the ByzFL library's CAF.

    Example:
        >>> rows = torch.tensor([[1.0, 0.0], [3.0, 0.0], [2.0, 0.0], [2.0, 90.0], [2.0, 91.0]])
        >>> CovarianceFilter()(rows)
        tensor([2., 0.])
    """

    name = "covariance-filter"
    one_of = ()
    takes = ROW_WEIGHTS

    def _solve(self, gram: Gram, context: CallContext) -> Solution:
        shares = context.weights_of(gram.n) * gram.n
        n_bad = self.n_bad_left(gram.n, gram.n_lost)
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
