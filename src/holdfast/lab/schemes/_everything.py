from dataclasses import dataclass
from typing import final

from torch import Tensor

from holdfast.aggregators import Aggregator
from holdfast.lab.schemes._scheme import FLOAT, Liars, Scheme, SchemeRun, Sent, schemes
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
    def send(self, updates: Tensor, present: Tensor, *, liars: Liars | None = None) -> Sent:
        # A copy of all rows would take as long as the rule.
        rows = updates if len(present) == self.n else updates[present]
        return Sent(rows, self.whole, FLOAT * self.layout.d)
