from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast._typing import ColumnFunction
from holdfast.aggregators._aggregator import rules
from holdfast.aggregators._bad_row_limit import BadRowLimit
from holdfast.aggregators._families import CoordinateAggregator
from holdfast.geometry import median, order_statistics


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class MeanAroundMedian(BadRowLimit, CoordinateAggregator):
    r"""The mean, for each coordinate, of the :math:`n - f` values nearest to its median (MeaMed).

    f is `n_bad` (or given by `bad_fraction`). Values equally far from the median that do not all
    fit share the remaining places, so that the order of rows does not matter. Resists f rows among
    :math:`n > 2f`. Reads the data once.

    Reference: Xie et al., *Generalized Byzantine-tolerant SGD* (2018), Definition 7.

    Example:
        >>> MeanAroundMedian(n_bad=1)(torch.tensor([[1.0], [2.0], [3.0], [90.0], [4.0]]))
        tensor([2.5000])
    """

    name = "mean-around-median"

    def _column_function(self, n: int, n_lost: int, row_weights: Tensor | None) -> ColumnFunction:
        return mean_around_median(n, n - self.n_bad_left(n, n_lost))


def mean_around_median(n: int, n_kept: int) -> ColumnFunction:
    """A function from a chunk [n, c] to the mean of the `n_kept` values nearest to the median."""
    middle_of, farthest_of = median(n), order_statistics(n, (n_kept - 1,))

    def function(chunk: Tensor) -> Tensor:
        middle = middle_of(chunk.unbind(0))
        deviations = chunk - middle
        distances = deviations.abs()
        (farthest,) = farthest_of(distances.unbind(0))
        inside = (distances < farthest).to(chunk.dtype)
        edge = (distances == farthest).to(chunk.dtype)
        share_of_edge = (n_kept - inside.sum(0)) / edge.sum(0)
        shares = inside + edge * share_of_edge
        total = torch.zeros_like(middle)
        # A deviation may overflow, and infinity times zero is no zero. Row by row, so that compiled
        # code adds in the same order.
        for part in torch.where(shares > 0, deviations * shares, 0.0).unbind(0):
            total = total + part
        return middle + total / n_kept

    return function
