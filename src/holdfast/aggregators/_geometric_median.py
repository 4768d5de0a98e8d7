from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.aggregators._aggregator import Aggregate, rules
from holdfast.aggregators._call import ROW_WEIGHTS, CallContext
from holdfast.aggregators._families import GramAggregator, ResistsMinority
from holdfast.checks import check_count, check_positive
from holdfast.geometry import (
    DenseRows,
    Gram,
    Rows,
    RowSets,
    Solution,
    Solutions,
    attach_gradient,
    geometric_median,
    geometric_medians,
    pays_to_stream,
    streaming_geometric_median,
)


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class GeometricMedian(ResistsMinority, GramAggregator):
    r"""The point with the least sum of distances to the rows (the paper's GmD), certified.

    :math:`\arg\min_y \sum_i \eta_i \|g_i - y\|` with `row_weights` :math:`\eta_i`. The `gap` of the
    result bounds how far the objective at the returned vector, as rounded to its dtype, is from its
    minimum, relative to the sum of the smaller half of the distances
    (:func:`holdfast.geometry.geometric_median` states the assumptions); the solver stops at
    `tolerance`. Resists any minority, :math:`\lfloor (n - 1) / 2 \rfloor` rows; with row weights,
    any set of less than half of the weight.

    Reads the data twice (Gram matrix, weighted sum), for any accuracy. With many rows on a CPU it
    iterates on the rows themselves if that is cheaper; both methods agree to the tolerance.

    A call on tensors that require gradients returns a vector with a graph: the derivative is that
    of the optimum, by implicit differentiation, and costs three more passes over the rows (see
    :func:`holdfast.geometry.attach_gradient`). It cannot be differentiated again.

    Reference: the paper's Definition of the geometric median and equation 3; Vardi and Zhang, *The
    multivariate L1-median and associated data depth* (PNAS 2000). Deviation: Newton steps
    safeguarded by Weiszfeld's, and a certificate.

    Example:
        >>> GeometricMedian()(torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [9e9, 9e9]]))
        tensor([0., 0.])
    """

    tolerance: float = 1e-6
    max_steps: int = 100

    name = "geometric-median"
    takes = ROW_WEIGHTS

    def __post_init__(self) -> None:
        check_positive("tolerance", self.tolerance)
        check_count("max_steps", self.max_steps, at_least=1)

    def _differentiable(
        self, vector: Tensor, tensors: Sequence[Tensor], row_weights: Tensor | None
    ) -> Tensor:
        n = len(tensors[0])
        eta = torch.full((n,), 1.0 / n) if row_weights is None else row_weights.detach()
        return attach_gradient(vector, eta.to("cpu", torch.float64), tensors)

    def _without_gram(self, rows: Rows, context: CallContext) -> Aggregate | None:
        streamable = rows.streamable
        if not pays_to_stream(streamable):
            return None
        found = streaming_geometric_median(
            streamable, row_weights=context.row_weights, tolerance=self.tolerance
        )
        if found is None:
            return None
        solution, vector = found
        weights = solution.weights
        vector = vector if isinstance(rows, DenseRows) else rows.combine(weights)
        none = torch.zeros(rows.n, dtype=torch.bool)
        return Aggregate(vector, weights, none, solution.outcome, solution.gap, solution.steps)

    def _solve(self, gram: Gram, context: CallContext) -> Solution:
        return geometric_median(
            gram,
            row_weights=context.row_weights,
            tolerance=self.tolerance,
            max_steps=self.max_steps,
        )

    def _solve_sets(self, sets: RowSets, context: CallContext) -> Solutions:
        return geometric_medians(
            sets,
            row_weights=context.row_weights,
            tolerance=self.tolerance,
            max_steps=self.max_steps,
        )
