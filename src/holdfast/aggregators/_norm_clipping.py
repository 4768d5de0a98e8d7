from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.aggregators._aggregator import NOTHING, Aggregator, Given
from holdfast.aggregators._wrapper import Wrapper, check_wrappable
from holdfast.checks import check_count, check_one_of, check_positive
from holdfast.geometry import Lengths


@final
@dataclass(frozen=True, kw_only=True)
class NormClipping(Wrapper):
    r"""Shortens rows longer than a radius to that radius before `aggregator`.

    :math:`g_i \mapsto g_i \min(1, \tau / \|g_i\|)`. Either :math:`\tau` is `radius`, or it adapts to the rows (ARC): with f the `n_bad` and
    :math:`k = \lfloor 2 (f / n)(n - f) \rfloor`, it is the :math:`(k + 1)`-th largest norm. Give one of the two. Norms are taken from the
    origin, so the rule does not move with a shift of all rows. `row_weights` are handed on. Resists what `aggregator` resists. In
    Gram space it costs n numbers.

    Reference: Allouah et al., *Adaptive Gradient Clipping for Robust Federated Learning* (2024), Algorithm 2 (`n_bad`).

    Example:
        >>> from holdfast.aggregators import Mean
        >>> NormClipping(radius=2.0, aggregator=Mean())(torch.tensor([[1.0], [3.0], [-900.0]]))
        tensor([0.3333])
    """

    radius: float | None = None
    n_bad: int | None = None
    aggregator: Aggregator

    name = "clipping"
    _own_needs = NOTHING
    _mixes_by_products = False

    def __post_init__(self) -> None:
        check_wrappable(self.aggregator)
        check_one_of("radius", self.radius, "n_bad", self.n_bad)
        if self.radius is not None:
            check_positive("radius", self.radius)
        else:
            check_count("n_bad", self.n_bad)

    @property
    def takes(self) -> frozenset[str]:
        return self.aggregator.takes

    @property
    def n_needed(self) -> int:
        return max(1 if self.n_bad is None else 2 * self.n_bad + 1, self.aggregator.n_needed)

    def _n_resisted(self, n: int) -> int:
        return self.aggregator.n_resisted(n)

    def _mix(self, measured: Lengths, given: Given) -> tuple[Tensor, Tensor | None]:
        radius = (
            self._adapted_radius(measured) if self.radius is None else self.radius / measured.unit
        )
        return torch.diag(
            (radius / measured.norms).clamp(max=1.0).nan_to_num(1.0)
        ), given.row_weights

    def _adapted_radius(self, measured: Lengths) -> float:
        assert self.n_bad is not None
        n_bad = measured.n_bad_left(self.n_bad)
        n_clipped = 2 * n_bad * (measured.n - n_bad) // measured.n
        return float(measured.norms.sort(descending=True).values[n_clipped])
