from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast._typing import ColumnFunction
from holdfast.aggregators._aggregator import rules
from holdfast.aggregators._call import ROW_WEIGHTS
from holdfast.aggregators._families import CoordinateAggregator, ResistsMinority
from holdfast.geometry import median


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class CoordinateMedian(ResistsMinority, CoordinateAggregator):
    r"""The median of each coordinate (the paper's CmD).

    For an even number of rows it is the mean of the two middle values; with `row_weights`, the
    weighted median, which has half of the weight on either side. Resists any minority,
    :math:`\lfloor (n - 1) / 2 \rfloor` rows; with row weights, any set of less than half of the
    weight. Reads the data once, through a pruned sorting network.

    Reference: Yin et al., *Byzantine-Robust Distributed Learning: Towards Optimal Statistical
    Rates* (ICML 2018), Definition 1.

    Example:
        >>> CoordinateMedian()(torch.tensor([[1.0, 5.0], [2.0, 6.0], [300.0, -700.0]]))
        tensor([2., 5.])
    """

    name = "coordinate-median"
    takes = ROW_WEIGHTS

    def _column_function(self, n: int, n_lost: int, row_weights: Tensor | None) -> ColumnFunction:
        if row_weights is not None:
            return lambda chunk: _weighted_median(chunk, row_weights)
        middle = median(n)
        return lambda chunk: middle(chunk.unbind(0))


def _weighted_median(chunk: Tensor, row_weights: Tensor) -> Tensor:
    values, order = chunk.sort(dim=0)
    reached = row_weights.to(chunk.device)[order].cumsum(0)
    rounding = 1e-12
    last = len(values) - 1
    # The two middle values differ only where the cumulated weight is one half exactly.
    low = (reached < 0.5 - rounding).sum(0).clamp(max=last)
    high = (reached <= 0.5 + rounding).sum(0).clamp(max=last)
    middle = torch.stack([low, high])
    return (0.5 * values.gather(0, middle)).sum(0)  # halved first: the sum could overflow
