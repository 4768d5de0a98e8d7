from dataclasses import dataclass
from math import ceil
from typing import final

from holdfast._checks import check_count, check_one_of, check_share
from holdfast.aggregators._aggregator import Given
from holdfast.aggregators._gram_aggregator import GramAggregator
from holdfast.aggregators._krum import equal_weights
from holdfast.aggregators._traits import NOTHING
from holdfast.geometry import Gram, Solution


@final
@dataclass(frozen=True, kw_only=True)
class NormFilter(GramAggregator):
    r"""The mean of the rows without those of largest norm.

    Drops `n_bad` rows, or keeps the :math:`\lceil (1 - \beta) n \rceil` shortest where :math:`\beta` is `bad_fraction`: give one of
    the two. What is left of bad rows is no longer than an honest row, so the result is bounded against any minority that is
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
    takes = NOTHING
    needs = NOTHING

    def __post_init__(self) -> None:
        check_one_of("n_bad", self.n_bad, "bad_fraction", self.bad_fraction)
        if self.n_bad is not None:
            check_count("n_bad", self.n_bad)
        else:
            check_share("bad_fraction", self.bad_fraction, below=0.5)

    @property
    def n_needed(self) -> int:
        return 1 if self.n_bad is None else 2 * self.n_bad + 1

    def n_resisted(self, n: int) -> int:
        return self.n_bad if self.n_bad is not None else n - _n_kept(n, self.bad_fraction)

    def _solve(self, gram: Gram, given: Given) -> Solution:
        n_dropped = gram.n_bad_left(self.n_resisted(gram.n + gram.n_lost))
        shortest = gram.norms.argsort(stable=True)[: gram.n - n_dropped]
        return Solution(equal_weights(shortest, gram.n))


def _n_kept(n: int, bad_fraction: float | None) -> int:
    assert bad_fraction is not None
    return ceil((1 - bad_fraction) * n - 1e-9)  # 0.8 * 10 is 8.000000000000002
