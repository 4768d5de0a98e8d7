from dataclasses import dataclass
from typing import final

import torch

from holdfast.aggregators._aggregator import Aggregate, Aggregator, rules
from holdfast.aggregators._call import ROW_WEIGHTS, CallContext
from holdfast.checks import check_finite_majority
from holdfast.geometry import Rows, RowSets, Solutions


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class Mean(Aggregator):
    r"""The mean of the rows, as in plain SGD: one bad row can move it anywhere.

    :math:`\sum_i \eta_i g_i`, with `row_weights` :math:`\eta_i` of sum 1 (equal by default).
    Resists no bad row; only non-finite rows are left out. Reads the data once.

    Example:
        >>> Mean()(torch.tensor([[1.0, 2.0], [3.0, 6.0]]))
        tensor([2., 4.])
    """

    name = "mean"
    n_needed = 1
    reads_products = False
    takes = ROW_WEIGHTS

    def _n_resisted(self, n: int) -> int:
        return 0

    def _aggregate(self, rows: Rows, context: CallContext) -> Aggregate:
        weights = context.weights_of(rows.n)
        vector = rows.combine(weights)
        # A non-finite entry anywhere in the rows makes this sum non-finite.
        if not rows.holders.all(bool(torch.isfinite(vector.sum()))):
            finite = rows.finite()
            if bool(finite.all()):  # only the sum over the columns overflowed
                return Aggregate(vector, weights, weights == 0)
            check_finite_majority(finite)
            kept = torch.nonzero(finite)[:, 0]
            left = context.for_rows(kept).weights_of(len(kept))
            weights = torch.zeros_like(weights).index_copy(0, kept, left)
            vector = rows.combine(weights, exact=True)
        return Aggregate(vector, weights, weights == 0)

    def _solve_sets(self, sets: RowSets, context: CallContext) -> Solutions:
        n_sets = len(sets)
        weights = context.weights_of(sets.n).repeat(n_sets, 1)
        return Solutions(weights, torch.ones(n_sets, dtype=torch.bool))
