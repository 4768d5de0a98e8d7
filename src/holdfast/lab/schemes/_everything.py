from dataclasses import dataclass
from typing import final

from torch import Tensor

from holdfast.aggregators import Aggregator
from holdfast.lab.schemes._scheme import FLOAT, Lie, Scheme, SchemeRun, Sent, schemes
from holdfast.layout import Layout


@final
@schemes.register
@dataclass(frozen=True, kw_only=True)
class SendEverything(Scheme):
    """Every worker sends its whole update, and keeps nothing."""

    name = "everything"

    def start(self, layout: Layout, rule: Aggregator, *, n: int, seed: int) -> SchemeRun:
        return _Run(layout, rule, n=n, seed=seed)


@final
class _Run(SchemeRun):
    def send(self, updates: Tensor, present: Tensor, *, lie: Lie | None = None) -> Sent:
        return Sent(updates[present], self._whole, FLOAT * self.layout.d)
