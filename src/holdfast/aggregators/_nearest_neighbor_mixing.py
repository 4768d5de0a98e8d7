from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from holdfast.aggregators._aggregator import Aggregator, rules
from holdfast.aggregators._bad_row_limit import BadRowLimit
from holdfast.aggregators._call import ROW_WEIGHTS, CallContext
from holdfast.aggregators._wrapper import MixingWrapper
from holdfast.geometry import Gram, RowSets, Solutions


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class NearestNeighborMixing(BadRowLimit, MixingWrapper):
    r"""Replaces each row by the mean of its :math:`n - f` nearest rows, itself included (NNM).

    f is `n_bad` (or given by `bad_fraction`); the means go to `rule`. Mixing makes the rows of
    honest workers with different data similar, which gives any good rule an error of optimal order.
    Resists as many rows as `rule`, and at most f. In Gram space it costs one n x n product. A `gap`
    is that of the means before they are rounded, and so 0 if the result is one of them.

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
        return self._matrix(measured.squared_distances, measured.n_lost), None

    def _solve_sets(self, sets: RowSets, context: CallContext) -> Solutions | None:
        matrices = self._matrix(sets.squared_distances, sets.n_lost)
        mixed = sets.mixed(matrices)
        found = self.inner._solve_sets(mixed, context)
        if found is None:
            return None
        weights = torch.bmm(found.weights[:, None], matrices)[:, 0]
        # As for one set: a row is rejected if it has no part in any of the means that were used.
        rejected = torch.bmm((~found.left_out[:, None]).double(), matrices)[:, 0] == 0
        # Neighbors may have been chosen from lost digits, and long rows may cancel in a mean.
        is_certain = found.is_certain & sets.are_resolved & mixed.exceed_rounding_of(sets)
        exact = torch.ones_like(is_certain)  # the gaps are those of sums in float64
        return replace(
            found, weights=weights, rejected=rejected, is_certain=is_certain, exact=exact
        )

    def _matrix(self, squared_distances: Tensor, n_lost: int) -> Tensor:
        """The coefficients [..., n, n] of the means, from the squared distances of finite rows."""
        n = squared_distances.shape[-1]
        n_near = n - self.n_bad_left(n, n_lost)
        nearest = squared_distances.argsort(dim=-1, stable=True)[..., :n_near]
        return torch.zeros_like(squared_distances).scatter_(-1, nearest, 1.0 / n_near)
