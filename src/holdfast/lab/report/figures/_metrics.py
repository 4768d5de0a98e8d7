"""Quantities that runs have over time, and the time per step."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import final

from holdfast.lab.records import Summary
from holdfast.lab.report._formatting import number, percent
from holdfast.lab.report.figures._views import Metric

GRADIENT = "gradient"

SAME_WORK = ("data", "model", "n_rows", "row_size")
"""Fields of a configuration: where they are equal, the gradient is the same work."""

REMARK = (
    "The gradient is the same work for all methods; its median time is shown for all of them, "
    "because the machine was not always equally fast."
)


@final
@dataclass(frozen=True, kw_only=True)
class Quantity:
    """A quantity of a summary.

    Args:
        key: its name in the summary.
        label: label of its axis.
        is_evaluated: whether it belongs to the evaluations, otherwise to the series.
        factor: from the unit in the summary to the unit that is shown.
        form: formats a value.
    """

    key: Metric
    label: str
    is_evaluated: bool = False
    factor: float = 1.0
    form: Callable[[float], str] = number

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Range of possible values of a share."""
        return None if self.factor == 1 else (0.0, self.factor)

    def over_steps(self, run: Summary) -> list[tuple[int, float]]:
        """Return steps and values, without missing values."""
        if self.is_evaluated:
            pairs = [(one.step, getattr(one, self.key)) for one in run.evaluations]
        else:
            steps = run.series["step"]
            pairs = list(zip(steps, run.series.get(self.key, [None] * len(steps)), strict=True))
        return [(int(step), self.factor * value) for step, value in pairs if value is not None]

    def at_the_end(self, run: Summary) -> float | None:
        """Return the last value."""
        values = self.over_steps(run)
        return values[-1][1] if values else None


QUANTITIES: Mapping[Metric, Quantity] = {
    quantity.key: quantity
    for quantity in (
        Quantity(
            key="accuracy", label="test accuracy (%)", is_evaluated=True, factor=100, form=percent
        ),
        Quantity(key="test_loss", label="test loss", is_evaluated=True),
        Quantity(
            key="attack_success",
            label="attack success (%)",
            is_evaluated=True,
            factor=100,
            form=percent,
        ),
        Quantity(key="loss", label="training loss"),
        Quantity(key="residual", label="relative residual"),
        Quantity(key="memory_norm", label="norm of the memory"),
        Quantity(key="bad_weight", label="weight of bad rows (%)", factor=100),
    )
}


def accuracy_in_percent(run: Summary) -> float | None:
    """Return the last test accuracy in percent."""
    return QUANTITIES["accuracy"].at_the_end(run)


def step_times(runs: Iterable[Summary]) -> dict[str, dict[str, float]]:
    """Return the seconds of each part of a step, by the hash of the run.

    The time of the gradient is the median over all runs with the same work on the same kind of
    device.
    """
    runs = list(runs)
    gradients: dict[tuple[str, ...], list[float]] = {}
    for run in runs:
        if GRADIENT in run.seconds:  # a run without a step has no times
            gradients.setdefault(_work(run), []).append(run.seconds[GRADIENT])
    usual = {work: median(seconds) for work, seconds in gradients.items()}
    return {
        run.hash: run.seconds | ({GRADIENT: usual[_work(run)]} if GRADIENT in run.seconds else {})
        for run in runs
    }


def _work(run: Summary) -> tuple[str, ...]:
    machine = run.machine or {}
    settings = [run.config.get(name) for name in SAME_WORK]
    return tuple(map(str, (*settings, machine.get("device"), machine.get("threads"))))
