from dataclasses import dataclass
from typing import final

import torch

from holdfast.aggregators._aggregator import rules
from holdfast.aggregators._call import ROW_WEIGHTS, CallContext
from holdfast.aggregators._families import GramAggregator
from holdfast.checks import check_positive
from holdfast.geometry import Gram, Solution, half_weight_radius, least


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class RadiusFilter(GramAggregator):
    r"""The mean of the rows that are near the vector median: the rule for accidents.

    The vector median is the row with the least distance r within which a majority of rows lies (the
    one with the least sum of distances, among equals). Rows farther from it than :math:`c\, r` are
    left out, where c is `reach`; the result is the mean of the others. Honest gradients of one
    batch are rarely more than twice as far out as their majority, so with nothing wrong no row is
    left out, and the result is then bit for bit that of :class:`Mean`. A row that is scaled, noisy,
    corrupt or not finite is left out whole. A lie within the reach counts as an honest row does:
    against colluding attackers use a rule with memory.

    A known `radius` :math:`\rho`, which bounds the deviation of good rows from each other, replaces
    the reach: rows within :math:`2 \rho` of the vector median are kept. `row_weights` count toward
    the majority and the mean. Resists any minority, :math:`\lfloor (n - 1) / 2 \rfloor` rows; with
    row weights, any set of less than half of the weight. Reads the data twice.

    Reference: Bulusu et al., *On Distributed Stochastic Gradient Descent for Nonconvex Functions in
    the Presence of Byzantines* (ICASSP 2020); the vector median as in Alistarh, Allen-Zhu and Li,
    *Byzantine Stochastic Gradient Descent* (NeurIPS 2018), Algorithm 1. Deviations: the best row
    with a majority within the radius, where they take any such row; and the reach.

    Example:
        >>> RadiusFilter()(torch.tensor([[1.0], [2.0], [3.0], [90.0]]))
        tensor([2.])
    """

    reach: float = 3.0
    radius: float | None = None

    name = "radius-filter"
    n_needed = 1
    takes = ROW_WEIGHTS

    def __post_init__(self) -> None:
        check_positive("reach", self.reach)
        if self.radius is not None:
            check_positive("radius", self.radius)

    def _n_resisted(self, n: int) -> int:
        return (n - 1) // 2

    def _solve(self, gram: Gram, context: CallContext) -> Solution:
        shares = context.weights_of(gram.n)
        found = [half_weight_radius(row, shares) for row in gram.distances]
        radii = torch.tensor(found, dtype=torch.float64)
        median = least(radii, gram.distances @ shares)
        if self.radius is None:
            limit = self.reach * float(radii[median])
        else:
            limit = 2 * self.radius / gram.unit
        kept = gram.distances[median] <= limit
        if bool(kept.all()):
            return Solution(shares)  # as they are, so that the sum has the bits of the mean
        weights = shares * kept
        return Solution(weights / weights.sum())
