"""Measurements of rules and steps: their time and their breakdown point."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from holdfast.checks import check_count, check_fraction, check_positive
from holdfast.errors import NonFiniteMemoryError
from holdfast.lab.config import parse_rule, step_of
from holdfast.lab.paper.measurements._measurement import Measurement, measurements
from holdfast.seeds import stream
from holdfast.threats import Adversaries

LR = 0.1
"""Learning rate of steps with a memory."""

FAR = 1e8
"""Distance of bad rows, in deviations of the good ones."""

BROKEN = 1e3
"""Errors of more deviations count as unbounded; bad rows are a hundred thousand times as far."""

MOST_STEPS = 1000


def candidate(text: str) -> Callable[[Tensor], Tensor]:
    """Return the rule or step that a text names as a function [n, d] -> [d] with a memory."""
    step = step_of(**parse_rule(text), generator=torch.Generator().manual_seed(0))
    return lambda rows: step(rows, lr=LR).direction


def least_seconds(calls: Mapping[str, Callable[[], object]], n_rounds: int) -> dict[str, float]:
    """Return the least time of each call over several rounds, after one that warms up."""
    best = dict.fromkeys(calls, math.inf)
    for round_ in range(n_rounds + 1):
        for name, call in calls.items():
            started = time.perf_counter()
            call()
            if round_ > 0:
                best[name] = min(best[name], time.perf_counter() - started)
    return best


@final
@measurements.register
@dataclass(frozen=True, kw_only=True)
class RuleTime(Measurement):
    """Time of a rule or step on n rows of d columns.

    It is the least of several, taken in turns with the mean of the same rows.

    Args:
        rule: rule or preset.
        n: number of rows.
        d: number of columns.
        n_rounds: number of repetitions.

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
        rule, mean = candidate(self.rule), candidate("mean")
        best = least_seconds(
            {"rule": lambda: rule(rows), "mean": lambda: mean(rows)}, self.n_rounds
        )
        return {"seconds": _short(best["rule"]), "means": _short(best["rule"] / best["mean"])}


@final
@measurements.register
@dataclass(frozen=True, kw_only=True)
class BreakdownPoint(Measurement):
    """The smallest share of bad rows that moves the result without bound.

    Honest rows are standard normal around (1, ..., 1). All bad rows are at one place 1e8 away, and
    are redrawn at each step. A rule holds against a number of bad rows if the result never is more
    than 1000 deviations from the honest mean.

    Args:
        rule: rule or preset.
        n: number of rows.
        d: number of columns.
        n_steps: number of steps, in which bad rows may enter a memory.
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
            "errors": {f"{n_bad / self.n:g}": _short(error) for n_bad, error in errors.items()},
            "n_broken": broken[0] if broken else None,
            "breakdown": broken[0] / self.n if broken else None,
        }

    def _error(self, n_bad: int) -> float:
        """Return the largest distance of a result from the honest mean, in deviations."""
        rule, adversaries = candidate(self.rule), Adversaries(n_bad=n_bad)
        worst = 0.0
        for step in range(self.n_steps):
            generator = stream(self.seed, "breakdown", n_bad, step)
            rows = torch.randn(self.n, self.d, generator=generator) + 1.0
            rows[adversaries.draw(self.n, generator=generator)] = -FAR
            try:
                error = float((rule(rows) - 1.0).abs().max())
            except NonFiniteMemoryError:
                error = math.inf
            if not math.isfinite(error):
                return FAR * self.n
            worst = max(worst, error)
        return worst


@final
@measurements.register
@dataclass(frozen=True, kw_only=True)
class BlockSpeedUp(Measurement):
    r"""Speed-up of the geometric median of a block over that of all columns, by two solvers.

    `weiszfeld`: the textbook iteration over the rows, the kind of oracle that Lemma 2 counts, for
    choosing k columns and their median against the median of all d. `holdfast`: this library's step
    and median, whose cost is in reading the rows, not in iterations.

    Args:
        fraction: k / d.
        n: number of rows.
        d: number of columns.
        tolerance: the textbook iteration stops at a step shorter than this share of the distance
            from the origin.
        n_rounds: number of repetitions; the least time counts.

    Reference: the paper, Lemma 2: for :math:`k \le O(1/F - b \epsilon^2) d` the speed-up is F.
    """

    fraction: float
    n: int = 32
    d: int = 262144
    tolerance: float = 1e-6
    n_rounds: int = 3

    name = "block-speed-up"

    def __post_init__(self) -> None:
        check_fraction("fraction", self.fraction)
        check_positive("tolerance", self.tolerance)
        for name in ("n", "d", "n_rounds"):
            check_count(name, getattr(self, name), at_least=1)

    def measure(self) -> dict[str, Any]:
        rows, k = self._rows(), round(self.fraction * self.d) or 1
        generator = torch.Generator().manual_seed(0)

        def on_block() -> Tensor:
            block = torch.multinomial(rows.square().sum(0), k, generator=generator)
            return weiszfeld(rows[:, block], self.tolerance)

        bgmd, median = candidate(f"bgmd(fraction={self.fraction})"), candidate("geometric-median")
        times = least_seconds(
            {
                "weiszfeld": lambda: weiszfeld(rows, self.tolerance),
                "weiszfeld on block": on_block,
                "median": lambda: median(rows),
                "bgmd": lambda: bgmd(rows),
            },
            self.n_rounds,
        )
        return {
            "weiszfeld": _short(times["weiszfeld"] / times["weiszfeld on block"]),
            "holdfast": _short(times["median"] / times["bgmd"]),
            "seconds": {name: _short(seconds) for name, seconds in times.items()},
        }

    def _rows(self) -> Tensor:
        """Return rows around a common direction, whose columns decay as those of gradients do.

        A fifth of the rows is far away.
        """
        generator = torch.Generator().manual_seed(0)
        order = torch.randperm(self.d, generator=generator)
        scales = torch.arange(1, self.d + 1, dtype=torch.float32).rsqrt()[order]
        center = torch.randn(self.d, generator=generator)
        rows = (center + torch.randn(self.n, self.d, generator=generator)) * scales
        rows[: self.n // 5] *= -100
        return rows


def weiszfeld(rows: Tensor, tolerance: float) -> Tensor:
    """Return the geometric median of rows [n, d] by the textbook iteration, for comparison only."""
    point = rows.mean(0)
    for _ in range(MOST_STEPS):
        weights = 1 / torch.linalg.vector_norm(rows - point, dim=1).clamp_min(1e-30)
        new = (weights / weights.sum()) @ rows
        moved = torch.linalg.vector_norm(new - point)
        point = new
        if float(moved) <= tolerance * float(torch.linalg.vector_norm(point)):
            break
    return point


def _short(value: float) -> float:
    """Round to four significant digits."""
    return float(f"{value:.4g}")
