"""Summaries: a run in some ten kilobytes, with all that a report shows."""

import math
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Any, Final, final

from holdfast.checks import failure
from holdfast.lab.records._documents import LARGEST, check_config, check_document, check_plain
from holdfast.lab.records._reading import Record
from holdfast.lab.records._summary_form import check_form

SUMMARY_FORMAT: Final = "holdfast summary"
SUMMARY_VERSION: Final = 1

MOST_POINTS: Final = 60
"""Of a series over time; more is not seen in a figure."""

SERIES: Final = ("loss", "residual", "memory_norm", "bad_weight", "n_rejected")
EVALUATED: Final = ("accuracy", "test_loss", "attack_success")


@final
@dataclass(frozen=True, eq=False)
class Summary:
    """What a report needs to know of a run.

    Args:
        content: plain values. `config`, `hash`, `started`, `versions`, `machine` and `command` as in the record; `end` (None, or a mapping with "end" and perhaps "reason");
            `n_steps`; `evaluations`, each with `step`, `accuracy`, `test_loss` and perhaps `attack_success`; `series`, lists of equal length: `step`, and means since the
            step before of `loss`, `residual`, `memory_norm`, `bad_weight`, `n_rejected` as far as there are any; `seconds`, the median over the steps of the time that
            each part took, and "evaluation" for one evaluation; `rows`, at some of the steps (`step`) every row's weight (`weights`, or None), who was bad (`bad`) and who was rejected (`rejected`).
    """

    content: dict[str, Any]

    @property
    def config(self) -> dict[str, Any]:
        """The configuration as JSON."""
        config: dict[str, Any] = self.content["config"]
        return config

    @property
    def hash(self) -> str:
        """The configuration's hash."""
        return str(self.content["hash"])

    @property
    def has_ended(self) -> bool:
        """Whether there is nothing left to do."""
        return self.content["end"] is not None

    @property
    def has_diverged(self) -> bool:
        """Whether the training went to infinity."""
        return self.has_ended and self.content["end"]["end"] == "diverged"

    @property
    def accuracy(self) -> float | None:
        """The last test accuracy; None before the first evaluation."""
        found = self.content["evaluations"]
        return float(found[-1]["accuracy"]) if found else None

    @staticmethod
    def of(record: Record) -> "Summary":
        """The summary of a record.

        Raises:
            ValueError: if the record holds what no run writes.
        """
        run = record.run
        kept = {
            key: run.get(key)
            for key in ("hash", "config", "started", "versions", "machine", "command")
        }
        content = (
            {"format": SUMMARY_FORMAT, "version": SUMMARY_VERSION}
            | kept
            | {"end": record.end, "n_steps": record.n_steps}
        )
        try:
            content |= {
                "evaluations": _evaluations(record.entries),
                "series": _series(record.entries),
                "seconds": _seconds(record.entries),
                "rows": _rows(record.entries),
            }
            check_plain(content)
        except (TypeError, AttributeError, ValueError, OverflowError) as error:
            raise failure(
                "record", "hold what a run writes", f"{record.folder} ({error})"
            ) from error
        check_form(content)
        return Summary(content)

    @staticmethod
    def from_json(data: object) -> "Summary":
        """The summary with this content.

        Raises:
            NewerRecordError: if a later release wrote it.
            ValueError: if it is damaged.
        """
        data = check_document(data, "summary", SUMMARY_FORMAT, SUMMARY_VERSION)
        check_config(data, "summary")
        check_form(data)
        return Summary(data)


def _evaluations(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"step": entry["step"]}
        | {key: _rounded(entry[key], 6) for key in EVALUATED if key in entry}
        for entry in entries
        if entry.get("accuracy") is not None
    ]


def _series(entries: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Means over at most so many equal parts of the run."""
    n_parts = min(MOST_POINTS, len(entries))
    edges = [round(i * len(entries) / n_parts) for i in range(n_parts + 1)] if n_parts else [0]
    parts = [entries[start:stop] for start, stop in pairwise(edges)]
    found: dict[str, list[Any]] = {"step": edges[1:]}
    for key in SERIES:
        values = [
            [_bounded(entry[key]) for entry in part if entry.get(key) is not None] for part in parts
        ]
        if any(values):
            found[key] = [_rounded(fmean(some), 5) if some else None for some in values]
    return found


def _seconds(entries: list[dict[str, Any]]) -> dict[str, float]:
    times: dict[str, list[float]] = {}
    for entry in entries:
        for part, seconds in entry["seconds"].items():
            times.setdefault(part, []).append(seconds)
    return {part: float(f"{median(some):.4g}") for part, some in times.items()}


def _rows(entries: list[dict[str, Any]]) -> dict[str, Any]:
    shown = [entry for entry in entries if "rejected" in entry]
    every = -(-len(shown) // MOST_POINTS) or 1
    shown = shown[every - 1 :: every]
    weights = [
        [_rounded(weight, 3) for weight in entry["weights"]]
        for entry in shown
        if "weights" in entry
    ]
    if len(weights) < len(shown):  # of a rule that has none
        weights = []
    return {
        "step": [entry["step"] for entry in shown],
        "weights": weights or None,
        "bad": [entry.get("bad", []) for entry in shown],
        "rejected": [entry["rejected"] for entry in shown],
    }


def _bounded(value: float) -> float:
    """The value, or the largest that can be shown: a loss beyond it, just before a training in double precision diverges, is as good as infinite."""
    return (
        max(-LARGEST, min(value, LARGEST))
        if isinstance(value, float) and math.isfinite(value)
        else value
    )


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else float(f"{_bounded(value):.{digits}g}")
