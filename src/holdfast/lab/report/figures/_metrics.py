"""What a run has over time: where its summary keeps it, and how it is called."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

from holdfast.lab.records import Summary
from holdfast.lab.report._words import number, percent
from holdfast.lab.report.figures._views import Metric


@final
@dataclass(frozen=True, kw_only=True)
class Quantity:
    """One of the figures of a summary.

    Args:
        key: its name there.
        label: of its axis.
        is_evaluated: whether it stands among the evaluations, else among the series.
        factor: from the summary's unit to the one that is shown.
        form: a value in words.
    """

    key: Metric
    label: str
    is_evaluated: bool
    factor: float = 1.0
    form: Callable[[float], str] = number

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Between which it must lie, if it is a share."""
        return None if self.factor == 1 else (0.0, self.factor)

    def within(self, value: float) -> float:
        """The value, or the bound beyond which it cannot lie."""
        low, high = self.bounds or (-math.inf, math.inf)
        return min(max(value, low), high)

    def over_steps(self, run: Summary) -> list[tuple[int, float]]:
        """Steps and values, where there are any."""
        if self.is_evaluated:
            pairs = [(entry["step"], entry.get(self.key)) for entry in run.content["evaluations"]]
        else:
            series = run.content["series"]
            pairs = list(zip(series.get("step", []), series.get(self.key, []), strict=False))
        return [
            (int(step), self.factor * float(value)) for step, value in pairs if value is not None
        ]

    def at_the_end(self, run: Summary) -> float | None:
        """The last value."""
        values = self.over_steps(run)
        return values[-1][1] if values else None


QUANTITIES: Mapping[Metric, Quantity] = {
    quantity.key: quantity
    for quantity in (
        Quantity(
            key="accuracy", label="test accuracy (%)", is_evaluated=True, factor=100.0, form=percent
        ),
        Quantity(key="test_loss", label="test loss", is_evaluated=True),
        Quantity(
            key="attack_success",
            label="attack success (%)",
            is_evaluated=True,
            factor=100.0,
            form=percent,
        ),
        Quantity(key="loss", label="training loss", is_evaluated=False),
        Quantity(key="residual", label="relative residual", is_evaluated=False),
        Quantity(key="memory_norm", label="norm of the memory", is_evaluated=False),
        Quantity(
            key="bad_weight", label="weight of bad rows (%)", is_evaluated=False, factor=100.0
        ),
    )
}


def accuracy_in_percent(run: Summary) -> float | None:
    """The last test accuracy."""
    return QUANTITIES["accuracy"].at_the_end(run)
