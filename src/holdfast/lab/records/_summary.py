"""Summaries: a run in about ten kilobytes, with everything that a report shows."""

import math
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Any, Final, Literal, final

from holdfast.checks import check_count, failure
from holdfast.lab.records._documents import LARGEST, Document
from holdfast.lab.records._reading import Record

MAX_POINTS: Final = 60
"""Points of a series; a figure shows no more."""

SERIES: Final = ("loss", "residual", "memory_norm", "bad_weight", "n_rejected", "n_bytes")
EVALUATED: Final = ("accuracy", "test_loss", "attack_success")


@final
@dataclass(frozen=True, kw_only=True)
class End:
    """The end of a run: finished, or diverged for a reason."""

    end: Literal["finished", "diverged"]
    step: int | None = None
    reason: str | None = None


@final
@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One evaluation on the test set; accuracy and success of the attack are shares."""

    step: int
    accuracy: float
    test_loss: float | None = None
    attack_success: float | None = None

    def __post_init__(self) -> None:
        check_count("step", self.step)
        for name in ("accuracy", "attack_success"):
            if not 0 <= (getattr(self, name) or 0.0) <= 1:
                raise failure(name, "be in [0, 1]", getattr(self, name))


@final
@dataclass(frozen=True, kw_only=True)
class RowsOverTime:
    """The rows at some of the steps: weight of each row (or None), bad rows, rejected rows."""

    step: tuple[int, ...]
    weights: tuple[tuple[float, ...], ...] | None
    bad: tuple[tuple[int, ...], ...]
    rejected: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        n_rows = {len(line) for line in self.weights or ()}
        lengths = {len(self.step), len(self.bad), len(self.rejected)}
        lengths |= {len(self.weights)} if self.weights else set()
        if len(lengths) > 1 or len(n_rows) > 1 or 0 in n_rows:
            raise failure("rows", "have lists of equal length", sorted(lengths | n_rows))


@final
@dataclass(frozen=True, kw_only=True)
class Summary(Document):
    """A run as a report needs it.

    Args:
        end: None while the run is unfinished.
        n_steps: number of steps done.
        evaluations: evaluations on the test set, in order.
        series: lists of equal length: `step`, and means since the step before of `loss`,
            `residual`, `memory_norm`, `bad_weight`, `n_rejected`, `n_bytes` where they were
            recorded.
        seconds: median time of each part of a step; "evaluation" is the time per evaluation.
        rows: weights of rows, at some of the steps.
        suspects: rows that were suspect at the end.
    """

    FORMAT = "holdfast summary"

    end: End | None
    n_steps: int
    evaluations: tuple[Evaluation, ...]
    series: dict[str, tuple[float | None, ...]]
    seconds: dict[str, float]
    rows: RowsOverTime
    suspects: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_count("n_steps", self.n_steps)
        if "step" not in self.series or len(set(map(len, self.series.values()))) > 1:
            raise failure("series", "have `step` and lists of equal length", sorted(self.series))
        for step in self.series["step"]:
            check_count("step", step)

    @property
    def has_ended(self) -> bool:
        """Whether the run finished or diverged."""
        return self.end is not None

    @property
    def has_diverged(self) -> bool:
        """Whether the run diverged."""
        return self.end is not None and self.end.end == "diverged"

    @property
    def accuracy(self) -> float | None:
        """The last test accuracy; None before the first evaluation."""
        return self.evaluations[-1].accuracy if self.evaluations else None

    @staticmethod
    def of(record: Record) -> "Summary":
        """Summarize a record.

        Raises:
            ValueError: if the record holds values that no run writes.
        """
        names = ("hash", "config", "started", "versions", "machine", "command")
        content: dict[str, Any] = {name: record.run.get(name) for name in names}
        content |= {"format": Summary.FORMAT, "version": Summary.VERSION}
        content |= {"end": record.end, "n_steps": record.n_steps}
        try:
            content["evaluations"] = _evaluations(record.entries)
            content["series"] = _series(record.entries)
            content["seconds"] = _seconds(record.entries)
            content["rows"] = _rows(record.entries)
            last = record.entries[-1] if record.entries else {}
            content["suspects"] = last.get("suspects", [])
            return Summary.from_json(content)
        except (TypeError, AttributeError, ValueError, OverflowError) as error:
            requirement = "hold values that a run writes"
            raise failure("record", requirement, f"{record.folder} ({error})") from error


def _evaluations(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"step": entry["step"]}
        | {key: _rounded(entry[key], 6) for key in EVALUATED if entry.get(key) is not None}
        for entry in entries
        if entry.get("accuracy") is not None
    ]


def _series(entries: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Means over at most MAX_POINTS equal parts of the run; null values are left out."""
    n_parts = min(MAX_POINTS, len(entries))
    edges = [round(i * len(entries) / n_parts) for i in range(n_parts + 1)] if n_parts else [0]
    parts = [entries[start:stop] for start, stop in pairwise(edges)]
    found: dict[str, list[Any]] = {"step": edges[1:]}
    for key in SERIES:
        values = [[_bounded(e[key]) for e in part if e.get(key) is not None] for part in parts]
        if any(values):
            found[key] = [_rounded(fmean(some), 5) if some else None for some in values]
    return found


def _seconds(entries: list[dict[str, Any]]) -> dict[str, float]:
    times: dict[str, list[float]] = {}
    for entry in entries:
        for part, seconds in entry["seconds"].items():
            times.setdefault(part, []).append(seconds)
    return {part: _rounded(median(some), 4) for part, some in times.items()}


def _rows(entries: list[dict[str, Any]]) -> dict[str, Any]:
    shown = [e for e in entries if "rejected" in e and None not in (e.get("weights") or ())]
    every = -(-len(shown) // MAX_POINTS) or 1
    shown = shown[every - 1 :: every]
    is_weighted = all(entry.get("weights") for entry in shown)
    weights = [[_rounded(w, 3) for w in entry["weights"]] for entry in shown if is_weighted]
    return {
        "step": [entry["step"] for entry in shown],
        "weights": weights or None,
        "bad": [entry.get("bad", []) for entry in shown],
        "rejected": [entry["rejected"] for entry in shown],
    }


def _bounded(value: float) -> float:
    """Limit a finite value to LARGEST: just before a run diverges, its loss may be beyond."""
    is_limited = isinstance(value, float) and math.isfinite(value)
    return max(-LARGEST, min(value, LARGEST)) if is_limited else value


def _rounded(value: float, digits: int) -> float:
    return float(f"{_bounded(value):.{digits}g}")
