from dataclasses import dataclass
from typing import final

import torch

from holdfast.aggregators._aggregator import equal_weights, rules
from holdfast.aggregators._bad_row_limit import BadRowLimit
from holdfast.aggregators._call import CallContext
from holdfast.aggregators._families import GramAggregator
from holdfast.checks import check_count, failure
from holdfast.geometry import Gram, Solution


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class NeighborMean(BadRowLimit, GramAggregator):
    r"""The mean of the :math:`n - f` rows nearest to a given one, itself included (MoNNA).

    For a peer that trusts its own row, the one at `index`, and receives the others. f is `n_bad`
    (or given by `bad_fraction`); of rows at the same distance it takes the first. Resists f of the
    other rows among :math:`n > 2f`, if the given row is honest. Reads the data twice. The order of
    rows matters, because `index` is a position.

    Reference: Farhadkhani et al., *Robust Collaborative Learning with Linear Gradient Overhead*
    (ICML 2023), Algorithm 1 (nearest neighbor averaging).

    Example:
        >>> NeighborMean(n_bad=1)(torch.tensor([[1.0], [2.0], [4.0], [-80.0]]))
        tensor([2.3333])
    """

    index: int = 0

    name = "neighbor-mean"
    reads_order = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("index", self.index)

    @property
    def n_needed(self) -> int:
        return max(self._smallest_n(2, 1), self.index + 1)

    def _solve(self, gram: Gram, context: CallContext) -> Solution:
        own = torch.nonzero(gram.kept == self.index)[:, 0]
        if len(own) == 0:
            raise failure("rows", f"be finite in the given row (needed by {self})", self.index)
        n_near = gram.n - self.n_bad_left(gram.n, gram.n_lost)
        nearest = gram.squared_distances[own[0]].argsort(stable=True)[:n_near]
        return Solution(equal_weights(nearest, gram.n))
