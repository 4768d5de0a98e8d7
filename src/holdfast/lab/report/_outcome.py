"""The outcome of the runs of one cell: one method, one setting, several seeds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, final

from holdfast.lab.records import Summary
from holdfast.lab.report._collection import Collection
from holdfast.lab.report._formatting import DIVERGED, NOT_RUN, percent, unfinished

State = Literal["value", "diverged", "unfinished", "not run"]


@final
@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Values of the finished runs, and counts of the others.

    `unfinished` is the progress of the longest unfinished run, or empty.
    """

    n_wanted: int
    values: tuple[float, ...] = ()
    n_diverged: int = 0
    unfinished: str = ""

    @property
    def n_ended(self) -> int:
        """Number of runs that finished or diverged."""
        return len(self.values) + self.n_diverged

    @property
    def state(self) -> State:
        """Whether there is a mean, or why not: there is none if a run diverged."""
        if self.n_diverged:
            return "diverged"
        return "value" if self.values else "unfinished" if self.unfinished else "not run"

    @property
    def mean(self) -> float | None:
        """Mean over the finished runs; None if a run diverged."""
        return fmean(self.values) if self.state == "value" else None

    @property
    def height(self) -> float:
        """The mean, for sorting; a run that diverged is below all others."""
        return -1.0 if self.mean is None else self.mean

    @property
    def range(self) -> tuple[float, float] | None:
        """Smallest and largest value; None for fewer than two values, or if a run diverged."""
        is_shown = len(self.values) > 1 and self.state == "value"
        return (min(self.values), max(self.values)) if is_shown else None

    def text(self, form: Callable[[float], str] = percent) -> str:
        """Format the mean, or the state."""
        if self.mean is not None:
            return form(self.mean)
        if self.n_diverged and self.values:
            return f"{self.n_diverged} of {self.n_ended} {DIVERGED}"
        return DIVERGED if self.n_diverged else self.unfinished or NOT_RUN

    def detail(self, form: Callable[[float], str] = percent) -> str:
        """Format the range, and the number of seeds if runs are missing; may be empty."""
        is_shown = self.range or (self.n_diverged and self.values)
        words = [_range(self.values, form)] if is_shown else []
        words = [f"others {words[0]}"] if words and self.n_diverged else words
        if 0 < self.n_ended < self.n_wanted:
            words.append(f"{self.n_ended} of {self.n_wanted} seeds")
        return ", ".join(words)

    def words(self, form: Callable[[float], str] = percent) -> str:
        """Format text and detail."""
        detail = self.detail(form)
        return f"{self.text(form)} ({detail})" if detail else self.text(form)


def with_range(values: Sequence[float], form: Callable[[float], str] = percent) -> str:
    """Format the mean, with the range of two values or more.

    Example:
        >>> with_range([88.42, 89.0]), with_range([88.42])
        ('88.7 (88.4 to 89.0)', '88.4')
    """
    mean = form(fmean(values))
    return mean if len(values) == 1 else f"{mean} ({_range(values, form)})"


def _range(values: Sequence[float], form: Callable[[float], str]) -> str:
    ends = values if len(values) == 1 else (min(values), max(values))
    return " to ".join(map(form, ends))


def outcome(
    collection: Collection, hashes: Sequence[str], value: Callable[[Summary], float | None]
) -> Outcome:
    """Collect the outcome of runs; `value` reads the value of a finished run."""
    runs = [collection.runs[key] for key in hashes if key in collection.runs]
    finished = [value(run) for run in runs if run.has_ended and not run.has_diverged]
    going = sorted((run for run in runs if not run.has_ended), key=lambda run: run.n_steps)
    return Outcome(
        n_wanted=len(hashes),
        values=tuple(found for found in finished if found is not None),
        n_diverged=sum(run.has_diverged for run in runs),
        unfinished=unfinished(going[-1]) if going else "",
    )
