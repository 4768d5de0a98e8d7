import math
from dataclasses import dataclass
from typing import Any, final

import torch

from holdfast.checks import check_count
from holdfast.errors import NonFiniteMemoryError
from holdfast.lab.paper.measurements._candidates import candidate
from holdfast.lab.paper.measurements._measurement import Measurement
from holdfast.seeds import stream
from holdfast.threats import Adversaries

FAR = 1e8
"""How far away bad rows are, in deviations of the good ones."""

BROKEN = 1e3
"""An error of so many deviations is no bounded one: a bad row's whole way is a hundred thousand times as long."""


@final
@dataclass(frozen=True, kw_only=True)
class BreakdownPoint(Measurement):
    """The smallest share of bad rows that can put the result anywhere.

    Honest rows are standard normal around (1, ..., 1). For every number of bad rows, they all stand at one place 1e8 away, for some steps, redrawn each time. A rule holds if the
    result never is more than 1000 deviations from the honest mean.

    Args:
        rule: the rule or preset.
        n: rows.
        d: columns.
        n_steps: steps, which is what it takes to get into a memory.
        seed: root of the random numbers.

    Reference: the paper, Table 1, breakdown point.
    """

    rule: str
    n: int = 20
    d: int = 1000
    n_steps: int = 10
    seed: int = 0

    name = "breakdown-point"

    def __post_init__(self) -> None:
        candidate(self.rule)
        for name in ("n", "d", "n_steps"):
            check_count(name, getattr(self, name), at_least=1)
        check_count("seed", self.seed)

    def measure(self) -> dict[str, Any]:
        errors = {n_bad: self._error(n_bad) for n_bad in range(self.n // 2 + 2)}
        broken = [n_bad for n_bad, error in errors.items() if error > BROKEN]
        return {
            "errors": {
                f"{n_bad / self.n:g}": float(f"{error:.4g}") for n_bad, error in errors.items()
            },
            "n_broken": broken[0] if broken else None,
            "breakdown": broken[0] / self.n if broken else None,
        }

    def _error(self, n_bad: int) -> float:
        """The largest distance of a result from the honest mean, in units of a deviation."""
        rule, adversaries = candidate(self.rule), Adversaries(n_bad=n_bad)
        worst = 0.0
        for step in range(self.n_steps):
            generator = stream(self.seed, "breakdown", n_bad, step)
            rows = torch.randn(self.n, self.d, generator=generator) + 1.0
            rows[adversaries.draw(self.n, generator=generator)] = -FAR
            try:
                direction = rule(rows)
            except NonFiniteMemoryError:  # it went so far that no number tells
                return FAR * self.n
            error = float((direction - 1.0).abs().max())
            if not math.isfinite(error):
                return FAR * self.n
            worst = max(worst, error)
        return worst
