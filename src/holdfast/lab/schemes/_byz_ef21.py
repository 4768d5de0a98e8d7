from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from holdfast.aggregators import Aggregator
from holdfast.checks import check_fraction, check_share
from holdfast.lab.schemes._scheme import (
    Liars,
    Scheme,
    SchemeRun,
    Sent,
    count_of,
    own_largest,
    schemes,
    sparse_bytes,
)
from holdfast.layout import Layout


@final
@schemes.register
@dataclass(frozen=True, kw_only=True)
class ByzEf21(Scheme):
    r"""Workers send the largest differences from what the server has of them.

    Worker i has the momentum :math:`v_i \leftarrow \beta v_i + (1 - \beta) u_i` of its updates
    (:math:`u_i` at first) and sends the k largest entries of :math:`v_i - h_i`. Both sides add them
    to :math:`h_i`, which is zero at first. The rule is applied to all :math:`h_i`.

    Args:
        send: the share of the columns that is sent, k / d.
        momentum: :math:`\beta`, in [0, 1); 0 is the method without momentum.

    Reference: Rammal et al., *Communication Compression for Byzantine Robust Learning* (2023),
    Byz-EF21; with momentum as in Fatkhullin et al., *Momentum Provably Improves Error Feedback!*
    (NeurIPS 2023), EF21-SGDM.
    """

    send: float = 0.02
    momentum: float = 0.9

    name = "byz-ef21"

    def __post_init__(self) -> None:
        check_fraction("send", self.send)
        check_share("momentum", self.momentum, below=1.0)

    def start(self, layout: Layout, rule: Aggregator, *, n: int, seed: int) -> SchemeRun:
        return _Run(self, layout, rule, n=n, seed=seed)


@final
class _Run(SchemeRun):
    def __init__(
        self, scheme: ByzEf21, layout: Layout, rule: Aggregator, *, n: int, seed: int
    ) -> None:
        super().__init__(layout, rule, n=n, seed=seed)
        self._beta, self._k = scheme.momentum, count_of(scheme.send, layout.d)
        self._mirror = torch.zeros(n, layout.d, device=layout.parameters[0].device)
        self._momentum = torch.zeros_like(self._mirror)

    def send(self, updates: Tensor, present: Tensor, *, liars: Liars | None = None) -> Sent:
        if self.round == 0:
            self._momentum.copy_(updates)
        else:
            self._momentum.mul_(self._beta).add_(updates, alpha=1.0 - self._beta)
        mirror = self._mirror[present]
        mirror += own_largest(self._momentum[present] - mirror, self._k)
        self._mirror[present] = mirror
        return Sent(mirror, self.whole, sparse_bytes(self._k))

    def kept_norms(self) -> Tensor:
        norms: Tensor = torch.linalg.vector_norm(self._momentum - self._mirror, dim=1)
        return norms

    def state_dict(self) -> dict[str, Any]:
        state = {"mirror": self._mirror.clone(), "momentum": self._momentum.clone()}
        return super().state_dict() | state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._mirror.copy_(state["mirror"])
        self._momentum.copy_(state["momentum"])
