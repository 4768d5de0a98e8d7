from dataclasses import dataclass
from typing import final

import torch

from holdfast.aggregators._aggregator import ROW_WEIGHTS, Given
from holdfast.aggregators._families import GramAggregator
from holdfast.checks import check_positive
from holdfast.geometry import Gram, Solution, half_weight_radius, least


@final
@dataclass(frozen=True, kw_only=True)
class RadiusFilter(GramAggregator):
    r"""The mean of the rows near the vector median.

    The vector median is the row with the least distance within which a majority of rows lies; the
    rows within twice `radius` of it are kept. If `radius` bounds the deviation of good rows from
    each other, all of them are kept. By default `radius` is the vector median's own distance to its
    majority, so that nothing need be known. `row_weights` count toward the majority and the mean.
    Resists any minority, :math:`\lfloor (n - 1) / 2 \rfloor` rows; with row weights, any set of
    less than half of the weight. Reads the data twice.

    Reference: Bulusu et al., *On Distributed Stochastic Gradient Descent for Nonconvex Functions in
    the Presence of Byzantines* (ICASSP 2020); the vector median as in Alistarh, Allen-Zhu and Li,
    *Byzantine Stochastic Gradient Descent* (NeurIPS 2018), Algorithm 1. Deviation: the best row
    with a majority within the radius, where they take any such row.

    Example:
        >>> RadiusFilter(radius=2.0)(torch.tensor([[1.0], [2.0], [3.0], [90.0]]))
        tensor([2.])
    """

    radius: float | None = None

    name = "radius-filter"
    n_needed = 1
    takes = ROW_WEIGHTS

    def __post_init__(self) -> None:
        if self.radius is not None:
            check_positive("radius", self.radius)

    def _n_resisted(self, n: int) -> int:
        return (n - 1) // 2

    def _solve(self, gram: Gram, given: Given) -> Solution:
        shares = given.weights_of(gram.n)
        reaches = [half_weight_radius(row, shares) for row in gram.distances]
        reach = torch.tensor(reaches, dtype=torch.float64)
        median = least(reach, gram.distances @ shares)
        radius = float(reach[median]) if self.radius is None else self.radius / gram.unit
        weights = shares * (gram.distances[median] <= 2 * radius)
        return Solution(weights / weights.sum())
