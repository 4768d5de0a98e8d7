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
@dataclass(frozen=True)
class Quantity:
    """A quantity of a summary: of its evaluations if `is_evaluated`, else of its series.

    `factor` converts to the unit that is shown, `form` formats a value.
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
        steps, values = run.series["step"], run.series.get(self.key, ())
        if self.is_evaluated:
            steps = tuple(one.step for one in run.evaluations)
            values = tuple(getattr(one, self.key) for one in run.evaluations)
        pairs = zip(steps, values, strict=False)  # a series may be missing
        return [(int(step or 0), self.factor * value) for step, value in pairs if value is not None]

    def at_the_end(self, run: Summary) -> float | None:
        """Return the last value."""
        values = self.over_steps(run)
        return values[-1][1] if values else None


QUANTITIES: Mapping[Metric, Quantity] = {
    quantity.key: quantity
    for quantity in (
        Quantity("accuracy", "test accuracy (%)", is_evaluated=True, factor=100, form=percent),
        Quantity("test_loss", "test loss", is_evaluated=True),
        Quantity(
            "attack_success", "attack success (%)", is_evaluated=True, factor=100, form=percent
        ),
        Quantity("loss", "training loss"),
        Quantity("residual", "relative residual"),
        Quantity("memory_norm", "norm of the memory"),
        Quantity("bad_weight", "weight of bad rows (%)", factor=100),
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
