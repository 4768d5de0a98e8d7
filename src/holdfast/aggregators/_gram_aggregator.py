"""The family of rules that need inner products alone."""

from abc import abstractmethod
from typing import Any

import torch

from holdfast.aggregators._aggregator import Aggregate, Aggregator, Given
from holdfast.geometry import Gram, Rows, Solution


class GramAggregator(Aggregator):
    """A rule that finds the weights of the rows from their Gram matrix.

    One pass over the rows gives the n x n inner products, the rule works on these, and one more pass forms the sum. Whatever offers a
    Gram matrix and sums of rows, also an estimate of the one and a part of the other, can be handed to such a rule as `Rows`.
    """

    reads_products = True

    @abstractmethod
    def _solve(self, gram: Gram, given: Given) -> Solution:
        """Weights for the kept rows of `gram`; `given` speaks of these rows alone.

        A rule that compares norms alone says `reads_products = False` and is given `Lengths`, which cost a lighter pass.
        """

    def _without_gram(self, rows: Rows, given: Given) -> Aggregate | None:
        """The aggregate by a way that does not need the Gram matrix, where the rule has one and it is cheaper for these rows."""
        return None

    def _aggregate(self, rows: Rows, given: Given) -> Aggregate:
        found = self._without_gram(rows, given)
        if found is not None:
            return found
        gram: Any = (
            rows.gram(given.references, given.row_weights)
            if self.reads_products
            else rows.lengths()
        )
        solution = self._solve(gram, given.for_rows(gram.kept))
        weights = torch.zeros(rows.n, dtype=torch.float64)
        weights[gram.kept] = solution.weights
        rejected = torch.ones(rows.n, dtype=torch.bool)
        rejected[gram.kept] = (
            solution.weights == 0 if solution.rejected is None else solution.rejected
        )
        vector = rows.combine(weights, exact=gram.exact)
        if solution.reference_weight != 0.0 and given.reference is not None:
            vector += solution.reference_weight * given.reference.to(vector)
        return Aggregate(
            vector,
            weights,
            rejected,
            solution.outcome,
            solution.gap,
            solution.steps,
            solution.reference_weight,
        )
