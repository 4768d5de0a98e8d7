from dataclasses import dataclass
from math import inf
from typing import final

import torch
from torch import Tensor

from holdfast.aggregators._aggregator import rules
from holdfast.aggregators._bad_row_limit import BadRowLimit
from holdfast.aggregators._call import ROW_WEIGHTS, CallContext
from holdfast.aggregators._families import GramAggregator
from holdfast.geometry import Gram, Outcome, PrincipalScores, Solution, squared_hull_distances


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
    eigenproblems of size n. It stops as soon as no weights that could follow have a smaller
    variance: for rows of similar length in high dimension after a few dozens of n steps.

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
        least_total = gram.n - 2 * self.n_bad_left(gram.n, gram.n_lost)
        scores_of = PrincipalScores(gram)
        far = squared_hull_distances(gram.products[: gram.n, : gram.n])
        trust = torch.ones_like(shares)
        best, smallest, steps = trust, inf, 0
        while float((shares * trust).sum()) > least_total:
            variance, scores = scores_of(shares * trust)
            if variance < smallest:
                best, smallest = trust, variance
            if variance == 0.0 or _is_least(smallest, shares * trust / least_total, far):
                break
            trusted = torch.where(trust > 0, scores, 0.0)
            trust = trust * (1 - trusted / trusted.max())
            steps += 1
        weights = shares * best
        return Solution(weights / weights.sum(), Outcome.FINISHED, steps)


def _is_least(variance: float, most: Tensor, far: Tensor) -> bool:
    r"""Whether no weights s with sum 1 and :math:`s_i` <= `most` [n] have a smaller `variance`.

    Row i has a squared distance of at least :math:`r_i` = `far` from any mean of others, so that
    the largest variance under s is at least :math:`s_i (1 - s_i) r_i`, that of row i against the
    others. Where this is below the variance, :math:`s_i` is small (or near 1, which `most` may rule
    out). If even the largest such :math:`s_i` do not add up to 1, there are no such weights.
    """
    share = variance / far  # infinite where nothing is known
    small = 0.5 - (0.25 - share.clamp(max=0.25)).sqrt()
    is_bounded = (share < 0.25) & (most <= 1 - small)
    return float(torch.where(is_bounded, torch.minimum(small, most), most).sum()) < 1 - 1e-9
