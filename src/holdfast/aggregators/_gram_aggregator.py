"""The family of rules that need inner products alone."""

from abc import abstractmethod

import torch

from holdfast.aggregators._aggregator import Aggregate, Aggregator, Given
from holdfast.geometry import Gram, Rows, Solution


class GramAggregator(Aggregator):
    """A rule that finds the weights of the rows from their Gram matrix.

    One pass over the rows gives the n x n inner products, the rule works on these, and one more pass forms the sum.
    """

    @abstractmethod
    def _solve(self, gram: Gram, given: Given) -> Solution:
        """Weights for the kept rows of `gram`; `given` speaks of these rows alone."""

    def _aggregate(self, rows: Rows, given: Given) -> Aggregate:
        gram = rows.gram(given.references)
        return combined(rows, gram, self._solve(gram, given.for_rows(gram.kept)), given)


def combined(rows: Rows, gram: Gram, solution: Solution, given: Given) -> Aggregate:
    """The aggregate that a solution in Gram space stands for."""
    weights = torch.zeros(rows.n, dtype=torch.float64)
    weights[gram.kept] = solution.weights
    vector = rows.combine(weights, exact=gram.exact)
    if solution.reference_weight != 0.0 and given.reference is not None:
        vector += solution.reference_weight * given.reference.to(vector)
    return Aggregate(vector, weights, weights == 0, solution.outcome, solution.gap, solution.steps)
