"""What came of the runs of one cell: one method, one setting, several seeds."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal, final

from holdfast.lab.records import Summary
from holdfast.lab.report._collection import Collection
from holdfast.lab.report._student import student_quantile
from holdfast.lab.report._words import DIVERGED, NOT_RUN, percent, unfinished

State = Literal["value", "diverged", "unfinished", "not run"]


@final
@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Counts, and the values of those that finished.

    Args:
        n_wanted: how many runs the study asks for.
        values: of the finished ones.
        n_diverged: how many went to infinity.
        unfinished: how far the furthest of the unfinished came, in words; empty if there is none.
    """

    n_wanted: int
    values: tuple[float, ...] = ()
    n_diverged: int = 0
    unfinished: str = ""

    @property
    def n_ended(self) -> int:
        """How many are over."""
        return len(self.values) + self.n_diverged

    @property
    def state(self) -> State:
        """Whether there is a mean; survivors of a divergence have none."""
        if self.n_diverged:
            return "diverged"
        return "value" if self.values else "unfinished" if self.unfinished else "not run"

    @property
    def mean(self) -> float | None:
        """Over the seeds that finished; None if one diverged."""
        return fmean(self.values) if self.state == "value" else None

    @property
    def interval(self) -> float | None:
        """Half the width of the 95 % confidence interval of the mean; None for less than two values."""
        n = len(self.values)
        return (
            student_quantile(n - 1) * stdev(self.values) / math.sqrt(n)
            if n > 1 and self.state == "value"
            else None
        )

    def words(self, form: Callable[[float], str] = percent) -> str:
        """All of it, as it stands in a table."""
        return f"{self.result(form)} ({self.seeds})" if self.seeds else self.result(form)

    def result(self, form: Callable[[float], str] = percent) -> str:
        """Mean and interval, or what came instead; beside runs that diverged, the range of the others."""
        if self.mean is not None:
            return spread(self.mean, self.interval, form)
        if self.n_diverged and self.values:
            ends = dict.fromkeys(form(end(self.values)) for end in (min, max))
            return f"{self.n_diverged} of {self.n_ended} {DIVERGED}, else {' to '.join(ends)}"
        return DIVERGED if self.n_diverged else self.unfinished or NOT_RUN

    @property
    def seeds(self) -> str:
        """How many of the seeds the result is from, if it is not all of them."""
        return (
            f"{self.n_ended} of {self.n_wanted} seeds" if 0 < self.n_ended < self.n_wanted else ""
        )


def spread(mean: float, interval: float | None, form: Callable[[float], str] = percent) -> str:
    """A mean and half the width of its interval, if it has one.

    Example:
        >>> spread(88.42, 0.16), spread(88.42, None)
        ('88.4 ± 0.2', '88.4')
    """
    return form(mean) if interval is None else f"{form(mean)} ± {form(interval)}"


def outcome(
    found: Collection, hashes: Sequence[str], value: Callable[[Summary], float | None]
) -> Outcome:
    """What came of these runs, of which `value` reads the figure wanted; a run that finished without it counts as not run."""
    runs = [found.runs[key] for key in hashes if key in found.runs]
    finished = [value(run) for run in runs if run.has_ended and not run.has_diverged]
    going = sorted(
        (run for run in runs if not run.has_ended), key=lambda run: run.content["n_steps"]
    )
    return Outcome(
        n_wanted=len(hashes),
        values=tuple(figure for figure in finished if figure is not None),
        n_diverged=sum(run.has_diverged for run in runs),
        unfinished=unfinished(going[-1]) if going else "",
    )
