"""The two families of rules: on inner products, and on single columns."""

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from holdfast._compile import WIDTH, column_kernel
from holdfast._typing import ColumnFunction
from holdfast.aggregators._aggregator import Aggregate, Aggregator, Given
from holdfast.checks import check_finite_majority
from holdfast.geometry import Gram, Rows, Solution


class GramAggregator(Aggregator):
    """A rule that computes the weights of the rows from their Gram matrix.

    One pass over the rows gives the n x n inner products, the rule works on these, and one more
    pass forms the sum. Such a rule works on all `Rows`, because each has a Gram matrix and sums of
    rows, exact or estimated.
    """

    reads_products = True

    @abstractmethod
    def _solve(self, gram: Gram, given: Given) -> Solution:
        """Weights for the kept rows of `gram`; `given` is restricted to these rows.

        A rule that compares only norms sets `reads_products = False` and gets `Lengths` instead,
        which cost a lighter pass.
        """

    def _without_gram(self, rows: Rows, given: Given) -> Aggregate | None:
        """The aggregate without the Gram matrix, if the rule has a way that is cheaper here."""
        return None

    def _aggregate(self, rows: Rows, given: Given) -> Aggregate:
        found = self._without_gram(rows, given)
        if found is not None:
            return found
        gram: Any
        if self.reads_products:
            gram = rows.gram(given.references, given.row_weights)
        else:
            gram = rows.lengths()
        solution = self._solve(gram, given.for_rows(gram.kept))
        weights = torch.zeros(rows.n, dtype=torch.float64)
        weights[gram.kept] = solution.weights
        rejected = torch.ones(rows.n, dtype=torch.bool)
        unused = solution.weights == 0
        rejected[gram.kept] = unused if solution.rejected is None else solution.rejected
        # A rule that gives every row its own weight is the mean, also in the bits of its sum.
        is_mean = torch.equal(weights, given.weights_of(rows.n))
        vector = rows.combine(weights, exact=gram.exact and not is_mean)
        if solution.reference_weight != 0.0 and given.reference is not None:
            vector += solution.reference_weight * given.reference.to(vector)
        outcome, gap, steps = solution.outcome, solution.gap, solution.steps
        return Aggregate(vector, weights, rejected, outcome, gap, steps, solution.reference_weight)


class CoordinateAggregator(Aggregator):
    """A rule that applies one function of n numbers to every column, chunk by chunk.

    If the pass over the columns meets values that are not finite, the rule runs again without the
    rows that hold them.
    """

    reads_products = False
    reads_columns = True

    @abstractmethod
    def _column_function(self, n: int, n_lost: int, row_weights: Tensor | None) -> ColumnFunction:
        """A function from a chunk [n, c] to [c]; `n_lost` further rows were not finite."""

    def _aggregate(self, rows: Rows, given: Given) -> Aggregate:
        vector, is_clean = self._map(rows, rows.n_lost, given)
        rejected = torch.zeros(rows.n, dtype=torch.bool)
        if not is_clean:
            finite = rows.finite()
            check_finite_majority(finite)
            rejected = ~finite
            if bool(rejected.any()):
                kept = torch.nonzero(finite)[:, 0]
                n_lost = rows.n_lost + rows.n - len(kept)
                vector, _ = self._map(rows.keep(kept), n_lost, given.for_rows(kept))
        return Aggregate(vector, None, rejected)

    def _map(self, rows: Rows, n_lost: int, given: Given) -> tuple[Tensor, bool]:
        def make() -> ColumnFunction:
            return self._column_function(rows.n, n_lost, given.row_weights)

        if given.row_weights is not None:  # a kernel would be compiled for these weights only
            return rows.map_columns(make(), WIDTH)
        key = (self, rows.n, n_lost, rows.dtype, rows.device)
        return rows.map_columns(column_kernel(key, make, str(self), rows.n), WIDTH)
