from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.aggregators._aggregator import Aggregator, rules
from holdfast.aggregators._bad_row_limit import BadRowLimit
from holdfast.aggregators._call import CallContext
from holdfast.aggregators._wrapper import MixingWrapper
from holdfast.checks import check_positive
from holdfast.geometry import Lengths


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class NormClipping(BadRowLimit, MixingWrapper):
    r"""Shortens rows longer than a radius to that radius, and passes them to `rule`.

    :math:`g_i \mapsto g_i \min(1, \tau / \|g_i\|)`. Either :math:`\tau` is `radius`, or it adapts
    to the rows (ARC): it is the :math:`(k + 1)`-th largest norm with
    :math:`k = \lfloor 2 (f / n)(n - f) \rfloor`, where f is `n_bad` (or given by `bad_fraction`).
    Exactly one of the three must be given. Norms are measured from the origin, so the rule is not
    translation equivariant. `row_weights` are passed to `rule`. Resists what `rule` resists. In
    Gram space it costs n numbers.

    Reference: Allouah et al., *Adaptive Gradient Clipping for Robust Federated Learning* (2024),
    Algorithm 2 (`n_bad`).

    Example:
        >>> from holdfast.aggregators import Mean
        >>> NormClipping(radius=2.0, rule=Mean())(torch.tensor([[1.0], [3.0], [-900.0]]))
        tensor([0.3333])
    """

    radius: float | None = None
    rule: Aggregator | str

    name = "clipping"
    one_of = ("radius", "n_bad", "bad_fraction")
    _mixes_by_products = False

    def __post_init__(self) -> None:
        self._set_rule()
        super().__post_init__()
        if self.radius is not None:
            check_positive("radius", self.radius)

    @property
    def n_needed(self) -> int:
        return max(self._smallest_n(2, 1), self.inner.n_needed)

    def _n_resisted(self, n: int) -> int:
        return self.inner.n_resisted(n)

    def _mix(self, measured: Lengths, context: CallContext) -> tuple[Tensor, Tensor | None]:
        factors = (self._radius_for(measured) / measured.norms).clamp(max=1.0).nan_to_num(1.0)
        return torch.diag(factors), context.row_weights

    def _radius_for(self, measured: Lengths) -> float:
        if self.radius is not None:
            return self.radius / measured.unit
        n_bad = self.n_bad_left(measured.n, measured.n_lost)
        n_clipped = 2 * n_bad * (measured.n - n_bad) // measured.n
        return float(measured.norms.sort(descending=True).values[n_clipped])
