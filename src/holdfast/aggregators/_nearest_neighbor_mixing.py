from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.aggregators._aggregator import NOTHING, Aggregator, Given
from holdfast.aggregators._wrapper import Wrapper, check_wrappable
from holdfast.checks import check_count
from holdfast.geometry import Gram


@final
@dataclass(frozen=True, kw_only=True)
class NearestNeighborMixing(Wrapper):
    r"""Replaces each row by the mean of the :math:`n - f` rows nearest to it, itself included, before `aggregator` (NNM).

    f is `n_bad`. Makes the rows of honest workers with different data alike, which turns any good rule into one of optimal order.
    Resists as many rows as `aggregator`, and `n_bad` at most. In Gram space it costs one n x n product.

    Reference: Allouah et al., *Fixing by Mixing: A Recipe for Optimal Byzantine ML under Heterogeneity* (AISTATS 2023),
    Algorithm 2.

    Example:
        >>> from holdfast.aggregators import Krum
        >>> NearestNeighborMixing(n_bad=1, aggregator=Krum(n_bad=1))(torch.tensor([[1.0], [2.0], [3.0], [4.0], [90.0]]))
        tensor([2.5000])
    """

    n_bad: int
    aggregator: Aggregator

    name = "mixing"
    _own_needs = NOTHING
    _mixes_by_products = True

    def __post_init__(self) -> None:
        check_wrappable(self.aggregator)
        check_count("n_bad", self.n_bad)

    @property
    def takes(self) -> frozenset[str]:
        return self.aggregator.takes - {
            "row_weights"
        }  # a mean of nearest rows has no weights to hand on

    @property
    def n_needed(self) -> int:
        return max(2 * self.n_bad + 1, self.aggregator.n_needed)

    def _n_resisted(self, n: int) -> int:
        return min(self.n_bad, self.aggregator.n_resisted(n))

    def _mix(self, measured: Gram, given: Given) -> tuple[Tensor, Tensor | None]:
        n_near = measured.n - measured.n_bad_left(self.n_bad)
        nearest = measured.squared_distances.argsort(dim=1, stable=True)[:, :n_near]
        matrix = torch.zeros(measured.n, measured.n, dtype=torch.float64)
        return matrix.scatter_(1, nearest, 1.0 / n_near), None
