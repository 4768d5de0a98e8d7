from dataclasses import dataclass
from typing import final

from holdfast.aggregators import Aggregator
from holdfast.checks import check_fraction
from holdfast.lab.schemes._own_largest import OwnLargestRun
from holdfast.lab.schemes._scheme import Scheme, SchemeRun, schemes
from holdfast.layout import Layout


@final
@schemes.register
@dataclass(frozen=True, kw_only=True)
class NormFiltered(Scheme):
    """Every worker sends its own largest entries and keeps the rest; the rule filters by norms.

    The rule, which should be `norm-filter(bad_fraction=...)`, meets rows that are zero where a
    worker has sent nothing.

    Args:
        send: the share of the columns that a worker sends.

    Reference: Ghosh et al., *Communication-Efficient and Byzantine-Robust Distributed Learning with
    Error Feedback* (arXiv:1911.09721), Algorithm 2, with top-k as compressor.
    """

    send: float = 0.02

    name = "norm-filtered"
    default_rule = "norm-filter(bad_fraction=0.4)"

    def __post_init__(self) -> None:
        check_fraction("send", self.send)

    def start(self, layout: Layout, rule: Aggregator, *, n: int, seed: int) -> SchemeRun:
        return OwnLargestRun(layout, rule, share=self.send, n=n, seed=seed)
