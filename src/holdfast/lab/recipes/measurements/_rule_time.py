import time
from dataclasses import dataclass
from typing import Any, final

import torch

from holdfast._checks import check_count
from holdfast.lab.recipes.measurements._candidates import candidate
from holdfast.lab.recipes.measurements._measurement import Measurement


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
        best = {measured: float("inf"), mean: float("inf")}
        for round_ in range(self.n_rounds + 1):
            for call in best:
                started = time.perf_counter()
                call(rows)
                if round_ > 0:  # the first warms up
                    best[call] = min(best[call], time.perf_counter() - started)
        return {"seconds": float(f"{best[measured]:.4g}"), "means": float(f"{best[measured] / best[mean]:.4g}")}
