from dataclasses import dataclass
from typing import final

from holdfast.aggregators._aggregator import rules
from holdfast.aggregators._bad_row_limit import whole_count
from holdfast.aggregators._call import ROW_WEIGHTS, CallContext
from holdfast.aggregators._families import LengthAggregator
from holdfast.aggregators._norm_filter import tail
from holdfast.checks import check_share
from holdfast.geometry import Lengths, Solution


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class NormTrim(LengthAggregator):
    r"""The mean of the rows without both tails of their norms.

    Drops the :math:`\lfloor \beta n \rfloor` rows of largest and as many of smallest norm, where
    :math:`\beta` is `bad_fraction`. With `row_weights` a tail is as many rows as together weigh at
    most :math:`\beta`. This is how the BGMD paper describes the trimmed mean of Yin et al. (in
    Related Work); their own rule works on coordinates and is :class:`TrimmedMean`. Bounded for as
    many bad rows as one tail has. Norms are measured from the origin. Reads the data once for the
    norms, and the kept rows again.

    Example:
        >>> NormTrim(bad_fraction=0.25)(torch.tensor([[1.0], [3.0], [-80.0], [0.0]]))
        tensor([2.])
    """

    bad_fraction: float

    name = "norm-trim"
    n_needed = 1
    takes = ROW_WEIGHTS

    def __post_init__(self) -> None:
        check_share("bad_fraction", self.bad_fraction, below=0.5)

    def _n_resisted(self, n: int) -> int:
        return whole_count(self.bad_fraction, n)

    def _solve(self, lengths: Lengths, context: CallContext) -> Solution:
        shares = context.weights_of(lengths.n)
        order = lengths.norms.argsort(stable=True)
        weights = shares.clone()
        for end in (order, order.flip(0)):
            weights[tail(shares, end, self.bad_fraction)] = 0.0
        return Solution(weights / weights.sum())
