from dataclasses import dataclass
from typing import final

from torch import Tensor

from holdfast._typing import ColumnFunction
from holdfast.aggregators._aggregator import rules
from holdfast.aggregators._call import ROW_WEIGHTS
from holdfast.aggregators._families import CoordinateAggregator, ResistsMinority


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class SignMajority(ResistsMinority, CoordinateAggregator):
    r"""The sign that the majority of rows has in each coordinate: -1, 0 or 1.

    :math:`\operatorname{sign}(\sum_i \eta_i \operatorname{sign}(g_i))` with `row_weights`
    :math:`\eta_i`. Magnitudes are lost by design: the rule is not scale equivariant, and does not
    return equal rows unchanged. A minority cannot change a sign on which all other rows agree.
    Reads the data once.

    Reference: Bernstein et al., *signSGD with Majority Vote is Communication Efficient and Fault
    Tolerant* (ICLR 2019), Algorithm 1.

    Example:
        >>> SignMajority()(torch.tensor([[0.1, -3.0], [0.2, -1.0], [-50.0, -1.0]]))
        tensor([ 1., -1.])
    """

    name = "sign-majority"
    takes = ROW_WEIGHTS

    def _column_function(self, n: int, n_lost: int, row_weights: Tensor | None) -> ColumnFunction:
        if row_weights is None:
            return lambda chunk: chunk.sign().sum(0).sign()
        return lambda chunk: _weighted_majority(chunk, row_weights)


def _weighted_majority(chunk: Tensor, row_weights: Tensor) -> Tensor:
    votes = row_weights.to(chunk.device) @ chunk.sign().double()
    votes[votes.abs() < 1e-12] = 0.0  # rounding must not decide a draw
    return votes.sign().to(chunk.dtype)
