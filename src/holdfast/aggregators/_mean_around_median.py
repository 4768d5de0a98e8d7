from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.aggregators._families import CoordinateAggregator
from holdfast.checks import check_count
from holdfast.geometry import median, order_statistics


@final
@dataclass(frozen=True, kw_only=True)
class MeanAroundMedian(CoordinateAggregator):
    r"""The mean, for each coordinate, of the :math:`n - f` values nearest to its median, where f is `n_bad` (MeaMed).

    Values equally far from the median that do not all fit share the remaining places, so that the order of rows does not
    matter. Resists `n_bad` rows among :math:`n > 2f`. Reads the data once.

    Reference: Xie et al., *Generalized Byzantine-tolerant SGD* (2018), Definition 7.

    Example:
        >>> MeanAroundMedian(n_bad=1)(torch.tensor([[1.0], [2.0], [3.0], [90.0], [4.0]]))
        tensor([2.5000])
    """

    n_bad: int

    name = "mean-around-median"

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
        n_kept = n - max(0, self.n_bad - n_lost)
        return mean_around_median(n, n_kept)


def mean_around_median(n: int, n_kept: int) -> Callable[[Tensor], Tensor]:
    """The function from a chunk [n, c] to the mean, in each column, of the `n_kept` values nearest to the column's median."""
    middle_of, farthest_of = median(n), order_statistics(n, (n_kept - 1,))

    def function(chunk: Tensor) -> Tensor:
        middle = middle_of(chunk.unbind(0))
        deviations = chunk - middle
        distances = deviations.abs()
        (farthest,) = farthest_of(distances.unbind(0))
        inside, edge = (
            (distances < farthest).to(chunk.dtype),
            (distances == farthest).to(chunk.dtype),
        )
        share_of_edge = (n_kept - inside.sum(0)) / edge.sum(0)
        total = torch.zeros_like(middle)
        for part in (deviations * (inside + edge * share_of_edge)).unbind(
            0
        ):  # in order, so that compiled code adds alike
            total = total + part
        return middle + total / n_kept

    return function
