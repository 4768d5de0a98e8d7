from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, final

from torch import Tensor

from holdfast.aggregators import Aggregate, Aggregator, Mean
from holdfast.checks import check_fraction, failure
from holdfast.geometry import DenseRows
from holdfast.lab.schemes._own_largest import OwnLargestRun
from holdfast.lab.schemes._scheme import Scheme, SchemeRun, Sent, own_largest, schemes
from holdfast.layout import Layout


@final
@schemes.register
@dataclass(frozen=True, kw_only=True)
class ScatterMean(Scheme):
    """Every worker sends its own largest entries; a column is averaged over those that sent it.

    What trainers over slow links do today. A worker that alone sends a column owns it. The rule is
    this average, and no other. Attackers may send any k values in columns of their choice: of the
    rows that an attack gives them, the k largest entries.

    Args:
        send: the share of the columns that a worker sends.

    Reference: Sarfi et al., *Communication Efficient LLM Pre-training with SparseLoCo*
    (arXiv:2508.15706), here without quantization; DisTrO has the same average.
    """

    send: float = 0.02

    name = "scatter-mean"
    default_rule = "mean"

    def __post_init__(self) -> None:
        check_fraction("send", self.send)

    def start(self, layout: Layout, rule: Aggregator, *, n: int, seed: int) -> SchemeRun:
        if not isinstance(rule, Mean):
            raise failure("rule", "be mean with scatter-mean, which averages by column", rule)
        return _Run(layout, rule, share=self.send, n=n, seed=seed)


@final
class _Run(OwnLargestRun):
    @property
    def known_rule(self) -> Callable[..., Tensor]:
        def scattered(rows: Any, **_: Any) -> Tensor:
            matrix = rows.matrix() if isinstance(rows, DenseRows) else rows
            return scatter_mean(own_largest(matrix, self.k))

        return scattered

    def aggregate(self, sent: Sent) -> Aggregate:
        # Attackers have as many values as everybody.
        rows = own_largest(sent.matrix, self.k)
        sent.matrix.copy_(rows)
        return replace(super().aggregate(sent), vector=scatter_mean(rows), weights=None, gram=None)


def scatter_mean(rows: Tensor) -> Tensor:
    """[d] the mean of each column of the rows [n, d] over the entries that are not zero."""
    return rows.sum(0) / (rows != 0).sum(0).clamp(min=1)
