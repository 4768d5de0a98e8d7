from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from holdfast.aggregators import Aggregator
from holdfast.checks import check_fraction, check_share
from holdfast.lab.schemes._scheme import FLOAT, Liars, Scheme, SchemeRun, Sent, count_of, schemes
from holdfast.layout import Layout
from holdfast.seeds import stream


@final
@schemes.register
@dataclass(frozen=True, kw_only=True)
class Rosdhb(Scheme):
    r"""Robust sparsified distributed heavy ball: random columns, momentum at the server.

    In every round all workers send the same k columns of their update :math:`u_i`, drawn at random.
    The server keeps :math:`m_i \leftarrow \beta m_i + (1 - \beta) \frac{d}{k}\, \mathrm{mask}(u_i)`
    and applies the rule to all :math:`m_i`. Nothing is kept by workers: what is not sent is lost.

    Args:
        send: the share of the columns that is sent, k / d.
        momentum: :math:`\beta`, in [0, 1).

    Reference: *RoSDHB* (arXiv:2508.17129), with masks that all workers share.
    """

    send: float = 0.02
    momentum: float = 0.9

    name = "rosdhb"

    def __post_init__(self) -> None:
        check_fraction("send", self.send)
        check_share("momentum", self.momentum, below=1.0)

    def start(self, layout: Layout, rule: Aggregator, *, n: int, seed: int) -> SchemeRun:
        return _Run(self, layout, rule, n=n, seed=seed)


@final
class _Run(SchemeRun):
    def __init__(
        self, scheme: Rosdhb, layout: Layout, rule: Aggregator, *, n: int, seed: int
    ) -> None:
        super().__init__(layout, rule, n=n, seed=seed)
        self._beta, self._k = scheme.momentum, count_of(scheme.send, layout.d)
        self._momentum = torch.zeros(n, layout.d, device=layout.parameters[0].device)

    def send(self, updates: Tensor, present: Tensor, *, liars: Liars | None = None) -> Sent:
        d = self.layout.d
        drawn = torch.randperm(d, generator=stream(self._seed, "mask", self.round))
        columns = drawn[: self._k].to(updates.device)
        # The server hears nothing of those who are absent, and leaves their momentum as it is.
        momentum = self._momentum[present] * self._beta
        fresh = updates[present[:, None], columns] * ((1.0 - self._beta) * d / self._k)
        momentum[:, columns] += fresh
        self._momentum[present] = momentum
        return Sent(momentum, self.whole, FLOAT * self._k)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"momentum": self._momentum.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._momentum.copy_(state["momentum"])
