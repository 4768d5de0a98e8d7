from dataclasses import dataclass
from typing import final

from torch import Tensor

from holdfast.aggregators._aggregator import rules
from holdfast.aggregators._bad_row_limit import ROUNDING, BadRowLimit
from holdfast.aggregators._call import NOTHING, ROW_WEIGHTS, CallContext
from holdfast.aggregators._families import LengthAggregator
from holdfast.geometry import Lengths, Solution


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class NormFilter(BadRowLimit, LengthAggregator):
    r"""The mean of the rows without those of largest norm.

    Drops the f longest rows, where f is `n_bad` or given by `bad_fraction`: the
    :math:`\lceil (1 - \beta) n \rceil` shortest rows remain. With `row_weights`, which require
    `bad_fraction`, it drops the longest rows that together weigh at most :math:`\beta`. Bad rows
    that remain are no longer than an honest row, so the result is bounded if at most as many rows
    are bad as are dropped. Norms are measured from the origin: the rule is not translation
    equivariant. Reads the data once for the norms, and the kept rows again.

    Reference: Ghosh et al., *Communication-Efficient and Byzantine-Robust Distributed Learning*
    (2019), Algorithm 1 (`bad_fraction`, without compression); Gupta, Liu and Vaidya, *Byzantine
    Fault-Tolerant Distributed Machine Learning using Norm-Based Comparative Gradient Elimination*
    (2020), equation 5 (`n_bad`; a mean here, a sum there).

    Example:
        >>> NormFilter(n_bad=1)(torch.tensor([[1.0], [3.0], [-80.0]]))
        tensor([2.])
    """

    name = "norm-filter"

    @property
    def takes(self) -> frozenset[str]:
        return NOTHING if self.bad_fraction is None else ROW_WEIGHTS

    def _solve(self, lengths: Lengths, context: CallContext) -> Solution:
        shares = context.weights_of(lengths.n)
        order = lengths.norms.argsort(descending=True, stable=True)
        if context.row_weights is None:
            longest = order[: self.n_bad_left(lengths.n, lengths.n_lost)]
        else:
            longest = tail(shares, order, self.bad_fraction or 0.0)
        weights = shares.index_fill(0, longest, 0.0)
        return Solution(weights / weights.sum())


def tail(shares: Tensor, order: Tensor, fraction: float) -> Tensor:
    """The first rows in `order`, as many as together weigh at most `fraction`."""
    return order[shares[order].cumsum(0) <= fraction + ROUNDING]
