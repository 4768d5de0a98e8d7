from dataclasses import dataclass
from typing import final

import torch

from holdfast.aggregators._aggregator import REFERENCE, ROW_WEIGHTS, Given
from holdfast.aggregators._families import GramAggregator
from holdfast.geometry import Gram, Solution


@final
@dataclass(frozen=True, kw_only=True)
class TrustedReference(GramAggregator):
    r"""The mean of the rows, each scaled to the length of a trusted gradient and trusted by its angle to it (FLTrust).

    With the call's `reference` :math:`g_0` and trust :math:`t_i = \max(0, \cos(g_i, g_0))`, returns
    :math:`\sum_i t_i \frac{\|g_0\|}{\|g_i\|} g_i / \sum_i t_i`, zero if no row points its way. `row_weights` multiply the trust. The result is
    never longer than :math:`g_0` and never points against it, whatever the rows hold, so all rows may be bad (a finite half of them at least); but it depends on the
    rows' angles to the origin, so it neither moves with a shift of all rows nor returns rows that agree. Reads the data twice.

    Reference: Cao et al., *FLTrust: Byzantine-robust Federated Learning via Trust Bootstrapping* (NDSS 2021), Section IV.

    Example:
        >>> TrustedReference()(torch.tensor([[5.0, 0.0], [-9.0, 0.0]]), reference=torch.tensor([2.0, 0.0]))
        tensor([2., 0.])
    """

    name = "trusted-reference"
    takes = ROW_WEIGHTS | REFERENCE
    needs = REFERENCE

    @property
    def n_needed(self) -> int:
        return 1

    def _n_resisted(self, n: int) -> int:
        return n

    def _solve(self, gram: Gram, given: Given) -> Solution:
        products = gram.about_origin
        length = float(products[gram.n, gram.n]) ** 0.5
        scale = (length / gram.norms).nan_to_num(0.0, posinf=0.0)
        cosines = (products[: gram.n, gram.n] / (gram.norms * length)).nan_to_num(0.0)
        trust = given.weights_of(gram.n) * cosines.clamp(min=0.0)
        total = float(trust.sum())
        return Solution(trust * scale / total if total > 0 else torch.zeros_like(trust))
