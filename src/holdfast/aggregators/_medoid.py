from dataclasses import dataclass
from typing import final

import torch

from holdfast.aggregators._aggregator import one_hot, rules
from holdfast.aggregators._call import ROW_WEIGHTS, CallContext
from holdfast.aggregators._families import GramAggregator, ResistsMinority
from holdfast.geometry import (
    FAR,
    Gram,
    Solution,
    half_weight_radius,
    least,
    most_central,
    squared_distances,
)


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class Medoid(ResistsMinority, GramAggregator):
    r"""The row with the least sum of distances to the rows.

    :math:`\arg\min_{g_j} \sum_i \eta_i \|g_i - g_j\|` with `row_weights` :math:`\eta_i`: the
    geometric median restricted to the rows. Resists any minority,
    :math:`\lfloor (n - 1) / 2 \rfloor` rows; with row weights, any set of less than half of the
    weight. Reads the data once, and one row again.

    Reference: Xie et al., *Generalized Byzantine-tolerant SGD* (2018), Definition 3 (there named
    geometric median).

    Example:
        >>> Medoid()(torch.tensor([[0.0], [1.0], [3.0], [100.0], [-2.0]]))
        tensor([1.])
    """

    name = "medoid"
    takes = ROW_WEIGHTS

    def _solve(self, gram: Gram, context: CallContext) -> Solution:
        weights = context.weights_of(gram.n)
        center = most_central(gram.distances, weights)
        usual = half_weight_radius(gram.distances[center], weights)
        if usual == 0.0:  # more than half of the weight is on one point
            return _chosen(center, gram.n)
        # Without clipping, the size of far rows would swallow the differences that decide.
        squared = squared_distances(gram.with_far_rows_clipped(center, FAR * usual))
        return _chosen(least(squared.sqrt() @ weights, squared @ weights), gram.n)


def _chosen(index: int, n: int) -> Solution:
    """All weight on one row; no row counts as rejected, because all took part in the choice."""
    return Solution(one_hot(index, n), rejected=torch.zeros(n, dtype=torch.bool))
