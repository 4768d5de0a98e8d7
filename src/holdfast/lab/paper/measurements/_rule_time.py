from dataclasses import dataclass
from typing import Any, final

import torch

from holdfast.checks import check_count
from holdfast.lab.paper.measurements._candidates import candidate
from holdfast.lab.paper.measurements._measurement import Measurement
from holdfast.lab.paper.measurements._timing import least_seconds


@final
@dataclass(frozen=True, kw_only=True)
class RuleTime(Measurement):
    """How long a rule or step takes on n rows of d columns: the least of several, in turns with the mean of the same rows.

    Args:
        rule: the rule or preset.
        n: rows.
        d: columns.
        n_rounds: how often.

    Reference: the paper, Table 1, iteration complexity.
    """

    rule: str
    n: int
    d: int
    n_rounds: int = 5

    name = "rule-time"

    def __post_init__(self) -> None:
        candidate(self.rule)
        for name in ("n", "d", "n_rounds"):
            check_count(name, getattr(self, name), at_least=1)

    def measure(self) -> dict[str, Any]:
        rows = torch.randn(self.n, self.d, generator=torch.Generator().manual_seed(0)) + 1.0
        measured, mean = candidate(self.rule), candidate("mean")
        best = least_seconds(
            {"rule": lambda: measured(rows), "mean": lambda: mean(rows)}, self.n_rounds
        )
        return {
            "seconds": float(f"{best['rule']:.4g}"),
            "means": float(f"{best['rule'] / best['mean']:.4g}"),
        }
