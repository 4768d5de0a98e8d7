from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.aggregators._aggregator import Aggregate, rules
from holdfast.aggregators._call import ROW_WEIGHTS, CallContext
from holdfast.aggregators._families import GramAggregator, ResistsMinority
from holdfast.checks import check_positive
from holdfast.geometry import (
    DenseRows,
    Gram,
    Rows,
    RowSets,
    Sketch,
    Solution,
    Solutions,
    columns_per_sampled,
    half_weight_radii,
    half_weight_radius,
    least,
    least_of_each,
    pays_to_stream,
)

DECEIVED = 1.5
"""If the vector median's exact radius is this many times the sketched one, the sketch is not
used."""


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class RadiusFilter(ResistsMinority, GramAggregator):
    r"""The mean of the rows near the vector median: the default rule, for accidents.

    The vector median is the row with the least distance r within which a majority of rows lies (the
    one with the least sum of distances, among equals). Rows farther from it than :math:`c\, r` are
    left out, where c is `reach`; the result is the mean of the others. Honest gradients of one
    batch are rarely more than twice as far away as their majority, so few rows are left out when
    nothing is wrong (on images at most 0.03 % with 8 samples per row, none with 16:
    docs/results/accidents.md). A result without a rejection is bitwise equal to that of
    :class:`Mean`. A row that is scaled, noisy, corrupt or not finite is left out entirely. A lie
    within the reach counts like an honest row: against colluding attackers use a method with
    memory, such as the exchange.

    Instead of the reach, a known `radius` :math:`\rho` may bound the deviation of good rows from
    each other: rows within :math:`2 \rho` of the vector median are kept. `row_weights` count toward
    the majority and the mean. Resists any minority, :math:`\lfloor (n - 1) / 2 \rfloor` rows; with
    row weights, any set of less than half of the weight.

    Reads the data twice. With many rows on a CPU a :class:`Sketch` chooses the vector median; its
    distances from all rows, its radius and hence who is left out are exact. The chosen row is
    nearly the best one, and no choice violates the bound. Let L be the length of the longest good
    row. Lengths in the sketch are exact, so in the sketch every good row has all good rows within 2
    L, and the radius of the chosen row is at most 2 L. If its exact radius is more than 1.5 times
    as large, the sketch is discarded and the Gram matrix decides. Otherwise a good row is within 3
    L of the chosen one, and every row that is kept within :math:`3 c L`.

    Reference: Bulusu et al., *On Distributed Stochastic Gradient Descent for Nonconvex Functions in
    the Presence of Byzantines* (ICASSP 2020); the vector median as in Alistarh, Allen-Zhu and Li,
    *Byzantine Stochastic Gradient Descent* (NeurIPS 2018), Algorithm 1. Deviations: it takes the
    best row with a majority within the radius instead of any such row; and the reach.

    Example:
        >>> RadiusFilter()(torch.tensor([[1.0], [2.0], [3.0], [90.0]]))
        tensor([2.])
    """

    reach: float = 4.0
    radius: float | None = None

    name = "radius-filter"
    takes = ROW_WEIGHTS

    def __post_init__(self) -> None:
        check_positive("reach", self.reach)
        if self.radius is not None:
            check_positive("radius", self.radius)

    def _without_gram(self, rows: Rows, context: CallContext) -> Aggregate | None:
        streamable = rows.streamable
        if not pays_to_stream(streamable):
            return None
        # Half of the median's sample: no step is taken in this sketch, only a row chosen.
        sketch = Sketch.of(streamable, 2 * columns_per_sampled(rows.n, streamable.d))
        if sketch is None:
            return None
        shares = context.weights_of(rows.n)
        median, seen = _vector_median(sketch.distances, shares)
        # The pass that measures the vector median's distances also forms the sum that the sketch
        # expects. A pass of its own, for two thirds of a mean, is needed only if that is wrong.
        expected, vector = self._weights_within_reach(sketch.distances[median], seen, shares), None
        if isinstance(rows, DenseRows):
            vector = torch.empty(rows.d, dtype=rows.dtype)
            products = rows.sweep(expected, vector, with_row=median)
        else:
            products = streamable.products_with_row(median)
        distances = sketch.distances_from_row(median, products)
        if distances is None:
            return None
        radius = half_weight_radius(distances, shares)
        if radius > DECEIVED * seen:
            return None
        weights = self._weights_within_reach(distances, radius, shares)
        if vector is None or not torch.equal(weights, expected):
            vector = rows.combine(weights)
        return Aggregate(vector, weights, weights == 0)

    def _solve(self, gram: Gram, context: CallContext) -> Solution:
        shares = context.weights_of(gram.n)
        median, radius = _vector_median(gram.distances, shares)
        distances = gram.distances[median]
        return Solution(self._weights_within_reach(distances, radius, shares, gram.unit))

    def _solve_sets(self, sets: RowSets, context: CallContext) -> Solutions:
        shares, distances = context.weights_of(sets.n), sets.distances
        radii = half_weight_radii(distances, shares)
        median = least_of_each(radii, distances @ shares)
        each = torch.arange(len(sets))
        limits = self.reach * radii[each, median]
        if self.radius is not None:
            limits = torch.full_like(limits, 2 * self.radius)
        kept = distances[each, median] <= limits[:, None]
        weights = shares * kept
        weights = torch.where(kept.all(1, keepdim=True), shares, weights / weights.sum(1)[:, None])
        return Solutions(weights, sets.are_resolved)

    def _weights_within_reach(
        self, distances: Tensor, majority: float, shares: Tensor, unit: float = 1.0
    ) -> Tensor:
        """[n] weights of the rows at these distances (in units) from the vector median.

        Within the radius `majority` of it is more than half of the weight.
        """
        limit = self.reach * majority if self.radius is None else 2 * self.radius / unit
        kept = distances <= limit
        if bool(kept.all()):
            return shares  # as they are, so that the sum has the bits of the mean
        weights = shares * kept
        return weights / weights.sum()


def _vector_median(distances: Tensor, shares: Tensor) -> tuple[int, float]:
    """The row with the least radius of a majority, and that radius, from distances [n, n]."""
    radii = half_weight_radii(distances, shares)
    median = least(radii, distances @ shares)
    return median, float(radii[median])
