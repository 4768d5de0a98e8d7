"""The families of rules: on inner products, on lengths, and on single columns."""

from abc import abstractmethod

import torch
from torch import Tensor

from holdfast._compile import WIDTH, column_kernel
from holdfast._typing import ColumnFunction
from holdfast.aggregators._aggregator import Aggregate, Aggregator
from holdfast.aggregators._call import CallContext
from holdfast.checks import check_finite_majority
from holdfast.geometry import ColumnRows, Gram, Lengths, Rows, Solution, by_column


class ResistsMinority:
    """Base of rules that are defined for any number of rows and resist every minority of them."""

    n_needed = 1

    def _n_resisted(self, n: int) -> int:
        return (n - 1) // 2


class GramAggregator(Aggregator):
    """A rule that computes the weights of the rows from their Gram matrix.

    One pass over the rows computes the n x n inner products, the rule works on these, and a second
    pass forms the weighted sum. Such a rule works on all `Rows`, because all have a Gram matrix and
    sums of rows, exact or estimated.
    """

    reads_products = True

    @abstractmethod
    def _solve(self, gram: Gram, context: CallContext) -> Solution:
        """Weights for the kept rows of `gram`; `context` is restricted to these rows."""

    def _without_gram(self, rows: Rows, context: CallContext) -> Aggregate | None:
        """The aggregate without the Gram matrix, if the rule has a way that is cheaper here."""
        return None

    def _aggregate(self, rows: Rows, context: CallContext) -> Aggregate:
        found = self._without_gram(rows, context)
        if found is not None:
            return found
        gram = rows.gram(context.references, context.row_weights)
        return _combined(rows, gram, self._solve(gram, context.for_rows(gram.kept)), context)


class LengthAggregator(Aggregator):
    """A rule that computes the weights of the rows from their norms, by a lighter pass."""

    reads_products = False

    @abstractmethod
    def _solve(self, lengths: Lengths, context: CallContext) -> Solution:
        """Weights for the kept rows of `lengths`; `context` is restricted to these rows."""

    def _aggregate(self, rows: Rows, context: CallContext) -> Aggregate:
        lengths = rows.lengths()
        solution = self._solve(lengths, context.for_rows(lengths.kept))
        return _combined(rows, lengths, solution, context)


def _combined(rows: Rows, measured: Lengths, solution: Solution, context: CallContext) -> Aggregate:
    """The weighted sum of the rows, with the solution in terms of all rows."""
    weights = torch.zeros(rows.n, dtype=torch.float64)
    weights[measured.kept] = solution.weights
    rejected = torch.ones(rows.n, dtype=torch.bool)
    unused = solution.weights == 0
    rejected[measured.kept] = unused if solution.rejected is None else solution.rejected
    # A rule that gives every row its own weight is the mean, also in the bits of its sum.
    is_mean = torch.equal(weights, context.weights_of(rows.n))
    vector = rows.combine(weights, exact=measured.exact and not is_mean)
    if solution.reference_weight != 0.0 and context.reference is not None:
        vector += solution.reference_weight * context.reference.to(vector)
    outcome, gap, steps = solution.outcome, solution.gap, solution.steps
    return Aggregate(
        vector,
        weights,
        rejected,
        outcome,
        gap,
        steps,
        reference_weight=solution.reference_weight,
        gram=measured if isinstance(measured, Gram) else None,
    )


class CoordinateAggregator(Aggregator):
    """A rule that applies one function of n numbers to every column, chunk by chunk.

    If the pass over the columns finds values that are not finite, the rule runs again without their
    rows.
    """

    reads_products = False
    reads_columns = True

    @abstractmethod
    def _column_function(self, n: int, n_lost: int, row_weights: Tensor | None) -> ColumnFunction:
        """A function from a chunk [n, c] to [c]; `n_lost` further rows were not finite."""

    def _aggregate(self, rows: Rows, context: CallContext) -> Aggregate:
        rows = by_column(rows)
        vector, is_clean = self._map(rows, rows.n_lost, context)
        rejected = torch.zeros(rows.n, dtype=torch.bool)
        if not is_clean:
            finite = rows.finite()
            check_finite_majority(finite)
            rejected = ~finite
            if bool(rejected.any()):
                kept = torch.nonzero(finite)[:, 0]
                n_lost = rows.n_lost + rows.n - len(kept)
                vector, _ = self._map(rows.keep(kept), n_lost, context.for_rows(kept))
        return Aggregate(vector, None, rejected)

    def _map(self, rows: ColumnRows, n_lost: int, context: CallContext) -> tuple[Tensor, bool]:
        def make() -> ColumnFunction:
            return self._column_function(rows.n, n_lost, context.row_weights)

        if context.row_weights is not None:  # a kernel would be compiled for these weights only
            return rows.map_columns(make(), WIDTH)
        key = (self, rows.n, n_lost, rows.dtype, rows.device)
        return rows.map_columns(column_kernel(key, make, str(self), rows.n), WIDTH)
