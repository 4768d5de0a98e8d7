from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.aggregators._aggregator import Aggregator, rules
from holdfast.aggregators._bad_row_limit import BadRowLimit
from holdfast.aggregators._call import NOTHING, ROW_WEIGHTS, CallContext
from holdfast.aggregators._wrapper import MixingWrapper
from holdfast.geometry import Gram


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class NearestNeighborMixing(BadRowLimit, MixingWrapper):
    r"""Replaces each row by the mean of its :math:`n - f` nearest rows, itself included (NNM).

    f is `n_bad` (or given by `bad_fraction`); the means go to `rule`. Mixing makes the rows of
    honest workers with different data similar, which gives any good rule an error of optimal order.
    Resists as many rows as `rule`, and at most f. In Gram space it costs one n x n product.

    Reference: Allouah et al., *Fixing by Mixing: A Recipe for Optimal Byzantine ML under
    Heterogeneity* (AISTATS 2023), Algorithm 2.

    Example:
        >>> from holdfast.aggregators import Krum
        >>> rule = NearestNeighborMixing(n_bad=1, rule=Krum(n_bad=1))
        >>> rule(torch.tensor([[1.0], [2.0], [3.0], [4.0], [90.0]]))
        tensor([2.5000])
    """

    rule: Aggregator | str

    name = "mixing"
    _own_needs = NOTHING
    _mixes_by_products = True

    def __post_init__(self) -> None:
        self._set_rule()
        super().__post_init__()

    @property
    def takes(self) -> frozenset[str]:
        return self.inner.takes - ROW_WEIGHTS  # means of nearest rows carry no weights

    @property
    def n_needed(self) -> int:
        return max(self._smallest_n(2, 1), self.inner.n_needed)

    def _n_resisted(self, n: int) -> int:
        return min(self.count_bad(n), self.inner.n_resisted(n))

    def _mix(self, measured: Gram, context: CallContext) -> tuple[Tensor, Tensor | None]:
        n_near = measured.n - self.n_bad_left(measured.n, measured.n_lost)
        nearest = measured.squared_distances.argsort(dim=1, stable=True)[:, :n_near]
        matrix = torch.zeros(measured.n, measured.n, dtype=torch.float64)
        return matrix.scatter_(1, nearest, 1.0 / n_near), None
