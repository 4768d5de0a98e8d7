from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast._typing import ColumnFunction
from holdfast.aggregators._aggregator import rules
from holdfast.aggregators._bad_row_limit import BadRowLimit
from holdfast.aggregators._families import CoordinateAggregator
from holdfast.geometry import order_statistics


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class TrimmedMean(BadRowLimit, CoordinateAggregator):
    r"""The mean of each coordinate without its f smallest and f largest values.

    f is `n_bad` (or given by `bad_fraction`). Resists f rows among :math:`n > 2f`. Reads the data
    once, through a pruned sorting network. The remaining values are summed directly: subtracting
    the extremes from a sum over all values would fail for infinities.

    Reference: Yin et al., *Byzantine-Robust Distributed Learning: Towards Optimal Statistical
    Rates* (ICML 2018), Definition 2.

    Example:
        >>> TrimmedMean(n_bad=1)(torch.tensor([[1.0], [2.0], [4.0], [900.0]]))
        tensor([3.])
    """

    name = "trimmed-mean"

    def _column_function(self, n: int, n_lost: int, row_weights: Tensor | None) -> ColumnFunction:
        n_trimmed = self.n_bad_left(n, n_lost)
        select = order_statistics(n, tuple(range(n_trimmed, n - n_trimmed)))

        def trimmed_mean(chunk: Tensor) -> Tensor:
            kept = select(chunk.unbind(0))
            total = torch.zeros_like(kept[0])
            for value in kept:
                total = total + value / len(kept)  # divided first: the sum could overflow
            return total

        return trimmed_mean
