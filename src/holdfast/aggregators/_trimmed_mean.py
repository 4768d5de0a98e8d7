from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.aggregators._families import CoordinateAggregator
from holdfast.checks import check_count
from holdfast.geometry import order_statistics


@final
@dataclass(frozen=True, kw_only=True)
class TrimmedMean(CoordinateAggregator):
    r"""The mean of each coordinate without its f smallest and f largest values, where f is `n_bad`.

    The values that stay are added up; nothing is subtracted from a sum over all, which infinities would spoil. Resists `n_bad`
    rows among :math:`n > 2f`. Reads the data once, through a pruned sorting network.

    Reference: Yin et al., *Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates* (ICML 2018), Definition 2.

    Example:
        >>> TrimmedMean(n_bad=1)(torch.tensor([[1.0], [2.0], [4.0], [900.0]]))
        tensor([3.])
    """

    n_bad: int

    name = "trimmed-mean"

    def __post_init__(self) -> None:
        check_count("n_bad", self.n_bad)

    @property
    def n_needed(self) -> int:
        return 2 * self.n_bad + 1

    def _n_resisted(self, n: int) -> int:
        return self.n_bad

    def _column_function(
        self, n: int, n_lost: int, row_weights: Tensor | None
    ) -> Callable[[Tensor], Tensor]:
        n_trimmed = max(0, self.n_bad - n_lost)
        select = order_statistics(n, tuple(range(n_trimmed, n - n_trimmed)))

        def trimmed_mean(chunk: Tensor) -> Tensor:
            kept = select(chunk.unbind(0))
            total = torch.zeros_like(kept[0])
            for value in kept:
                total = total + value / len(kept)
            return total

        return trimmed_mean
