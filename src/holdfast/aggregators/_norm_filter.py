from dataclasses import dataclass
from math import floor
from typing import final

from torch import Tensor

from holdfast.aggregators._aggregator import NOTHING, ROW_WEIGHTS, Given
from holdfast.aggregators._families import GramAggregator
from holdfast.checks import check_count, check_one_of, check_share
from holdfast.geometry import Lengths, Solution

ROUNDING = 1e-12
"""0.29 * 100 is 28.999999999999996."""


@final
@dataclass(frozen=True, kw_only=True)
class NormFilter(GramAggregator):
    r"""The mean of the rows without those of largest norm.

    Drops `n_bad` rows, or keeps the :math:`\lceil (1 - \beta) n \rceil` shortest where :math:`\beta` is `bad_fraction`: give one of
    the two. With `row_weights` (and `bad_fraction`) it drops the longest rows that together weigh at most :math:`\beta`. What is left of bad rows is no longer than an honest row, so the result is bounded against any minority that is
    not larger than what is dropped. Norms are taken from the origin: the rule does not move with a shift of all rows. Reads the
    data once for the norms, and the kept rows again.

    Reference: Ghosh et al., *Communication-Efficient and Byzantine-Robust Distributed Learning* (2019), Algorithm 1
    (`bad_fraction`, without compression); Gupta, Liu and Vaidya, *Byzantine Fault-Tolerant Distributed Machine Learning using
    Norm-Based Comparative Gradient Elimination* (2020), equation 5 (`n_bad`; they add up where we average).

    Example:
        >>> NormFilter(n_bad=1)(torch.tensor([[1.0], [3.0], [-80.0]]))
        tensor([2.])
    """

    n_bad: int | None = None
    bad_fraction: float | None = None

    name = "norm-filter"
    reads_products = False

    def __post_init__(self) -> None:
        check_one_of("n_bad", self.n_bad, "bad_fraction", self.bad_fraction)
        if self.n_bad is not None:
            check_count("n_bad", self.n_bad)
        else:
            check_share("bad_fraction", self.bad_fraction, below=0.5)

    @property
    def takes(self) -> frozenset[str]:
        return NOTHING if self.bad_fraction is None else ROW_WEIGHTS

    @property
    def n_needed(self) -> int:
        return 1 if self.n_bad is None else 2 * self.n_bad + 1

    def _n_resisted(self, n: int) -> int:
        return (
            self.n_bad
            if self.n_bad is not None
            else floor((self.bad_fraction or 0.0) * n + ROUNDING)
        )

    def _solve(self, gram: Lengths, given: Given) -> Solution:
        shares = given.weights_of(gram.n)
        order = gram.norms.argsort(descending=True, stable=True)
        if given.row_weights is None:
            n_dropped = gram.n_bad_left(self.n_resisted(gram.n + gram.n_lost))
            longest = order[:n_dropped]
        else:
            longest = tail(shares, order, self.bad_fraction or 0.0)
        weights = shares.index_fill(0, longest, 0.0)
        return Solution(weights / weights.sum())


def tail(shares: Tensor, order: Tensor, fraction: float) -> Tensor:
    """The rows that come first in `order`, as many as together weigh at most `fraction`."""
    return order[shares[order].cumsum(0) <= fraction + ROUNDING]
