from dataclasses import dataclass
from typing import final

import torch

from holdfast.aggregators._aggregator import rules
from holdfast.aggregators._call import REFERENCE, ROW_WEIGHTS, CallContext
from holdfast.aggregators._families import GramAggregator
from holdfast.geometry import Gram, Solution


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class TrustedReference(GramAggregator):
    r"""The mean of the rows, scaled to a trusted gradient and weighted by angle (FLTrust).

    With the call's `reference` :math:`g_0` and the trust :math:`t_i = \max(0, \cos(g_i, g_0))`,
    returns :math:`\sum_i t_i \frac{\|g_0\|}{\|g_i\|} g_i / \sum_i t_i`, or zero if no row is
    trusted. `row_weights` multiply the trust. The result is never longer than :math:`g_0` and never
    points against it, whatever the rows hold, so all rows may be bad (at least half of them must be
    finite). It depends on the rows' angles at the origin, so it is not translation equivariant and
    does not return equal rows unchanged. Reads the data twice.

    Reference: Cao et al., *FLTrust: Byzantine-robust Federated Learning via Trust Bootstrapping*
    (NDSS 2021), Section IV.

    Example:
        >>> rows, reference = torch.tensor([[5.0, 0.0], [-9.0, 0.0]]), torch.tensor([2.0, 0.0])
        >>> TrustedReference()(rows, reference=reference)
        tensor([2., 0.])
    """

    name = "trusted-reference"
    n_needed = 1
    takes = ROW_WEIGHTS | REFERENCE
    needs = REFERENCE

    def _n_resisted(self, n: int) -> int:
        return n

    def _solve(self, gram: Gram, context: CallContext) -> Solution:
        products = gram.about_origin
        length = float(products[gram.n, gram.n]) ** 0.5
        scale = (length / gram.norms).nan_to_num(0.0, posinf=0.0)
        cosines = (products[: gram.n, gram.n] / (gram.norms * length)).nan_to_num(0.0)
        trust = context.weights_of(gram.n) * cosines.clamp(min=0.0)
        total = float(trust.sum())
        return Solution(trust * scale / total if total > 0 else torch.zeros_like(trust))
