"""Tables of runs without a study: what they reached, and what their workers did."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from holdfast.lab.records import Summary
from holdfast.lab.report._collection import Collection
from holdfast.lab.report._comparison import Comparison, told
from holdfast.lab.report._formatting import ending, number, percent
from holdfast.lab.report._outcome import Outcome, outcome
from holdfast.lab.report._run_groups import (
    NAMED,
    RunGroup,
    differing,
    named_seeds,
    ranges,
    short_names,
)
from holdfast.lab.report.figures import DataTable
from holdfast.lab.report.figures._metrics import accuracy_in_percent

ALL_RUNS = "All runs"
"""Title of the table with one line per setting."""

MAX_SETTINGS = 4
"""Columns of settings; more of them are told in one, so that the results stay in sight."""

NONE = "—"
"""Shown where there is nothing."""

_NUMERIC = re.compile(r"(?!.*, )[\d.,%e+— -]*( to [\d.]+)?")
"""Numbers and ranges, but no lists."""

Labels = Mapping[str, str]
"""The label of each run by its hash."""


def run_table(groups: Sequence[RunGroup], labels: Labels) -> DataTable:
    """Make a table with one line per group, and columns for what differs between groups.

    More than :data:`MAX_SETTINGS` settings that differ share one column.
    """
    names = [name for name in NAMED if name == "rule" or is_different(groups, name)]
    settings = differing(groups)
    is_wide = len(settings) > MAX_SETTINGS
    names += [] if is_wide else settings
    columns: dict[str, list[str]] = {
        short: [group.settings.get(name, "") for group in groups]
        for short, name in zip(short_names(names), names, strict=True)
    }
    if is_wide:
        columns["settings"] = [", ".join(told(group, settings, settings)) for group in groups]
    results = [_outcome(group) for group in groups]
    columns["seeds"] = [seeds_of(group) for group in groups]
    columns["accuracy (%)"] = [result.text() if result.n_ended else NONE for result in results]
    columns["range"] = [result.detail() for result in results]
    columns["weight of bad rows (%)"] = [_mean(group, "bad_weight", 100) for group in groups]
    columns["rejected per step"] = [_mean(group, "n_rejected") for group in groups]
    columns["end"] = [_endings(group) for group in groups]
    if len({group.settings["bad"] for group in groups if group.is_attacked}) < 2:
        columns.pop("bad", None)
    kept = {
        name: cells
        for name, cells in columns.items()
        if name in ("rule", "seeds", "accuracy (%)") or any(cells)
    }
    return _table(ALL_RUNS, kept, groups, labels)


def worker_table(groups: Sequence[RunGroup], comparison: Comparison, labels: Labels) -> DataTable:
    """Make a table of what workers sent, and of who was rejected and suspected."""
    threats = threats_of(comparison)
    columns = {
        "rule": [labels[group.hashes[0]] for group in groups],
        "threat": [threats[group.hashes[0]] for group in groups],
        "workers": [group.settings["workers"] for group in groups],
        "local steps": [group.settings.get("local_steps", "") for group in groups],
        "bytes per worker and round": [_mean(group, "n_bytes") for group in groups],
        "rejected per round": [_mean(group, "n_rejected") for group in groups],
        "rejected in most rounds": [_mostly(group.runs[0], "rejected") for group in groups],
        "suspects at the end": [ranges(group.runs[0].suspects) or "none" for group in groups],
        "really bad": [
            _mostly(group.runs[0], "bad") if any(group.runs[0].rows.bad) else "" for group in groups
        ],
    }
    kept = {
        name: cells
        for name, cells in columns.items()
        if name in ("rule", "threat", "bytes per worker and round") or len(set(cells)) > 1
    }
    return _table("Workers", kept, groups, labels)


def is_different(groups: Sequence[RunGroup], name: str) -> bool:
    """Whether a setting has more than one value."""
    return len({group.settings.get(name) for group in groups}) > 1


def threats_of(comparison: Comparison) -> dict[str, str]:
    """Return the threat of each run by its hash."""
    pairs = [pair for one in comparison.contenders for pair in one.runs.items()]
    return {key: threat for threat, some in pairs for key in some}


def _table(
    caption: str, columns: Mapping[str, Sequence[str]], groups: Sequence[RunGroup], labels: Labels
) -> DataTable:
    texts = {
        i
        for i, cells in enumerate(columns.values())
        if any(not _NUMERIC.fullmatch(cell) for cell in cells)
    }
    names = tuple(columns)
    return DataTable(
        caption=caption,
        columns=names,
        rows=tuple(zip(*columns.values(), strict=True)),
        texts=frozenset({0} | texts - {i for i, name in enumerate(names) if "(%)" in name}),
        labels=tuple(labels[group.hashes[0]] for group in groups),
    )


def seeds_of(group: RunGroup) -> str:
    """Format the seeds of the runs of a group."""
    return named_seeds(run.config["seed"] for run in group.runs if "seed" in run.config)


def _outcome(group: RunGroup) -> Outcome:
    runs = {run.hash: run for run in group.runs}
    found = Collection(runs=runs, measurements={}, studies=())
    return outcome(found, list(runs), accuracy_in_percent)


def _mean(group: RunGroup, key: str, factor: float = 1.0) -> str:
    """Format the mean of a series over steps and runs; empty if it was not recorded."""
    values = [value for run in group.runs for value in run.series.get(key, ()) if value is not None]
    mean = factor * fmean(values) if values else 0.0
    return "" if not values else number(mean) if mean >= 1000 else percent(mean)


def _endings(group: RunGroup) -> str:
    """Describe how the runs ended, and how many of them."""
    counts = Counter(ending(run) for run in group.runs)
    if len(counts) == 1:
        return "" if "finished" in counts else next(iter(counts))
    return "; ".join(f"{n} {words}" for words, n in counts.items())


def _mostly(run: Summary, name: str) -> str:
    """Return the rows that are listed at more than half of the recorded steps."""
    listed: Iterable[Sequence[int]] = getattr(run.rows, name)
    counts = Counter(row for some in listed for row in some)
    often = ranges(row for row, n in counts.items() if 2 * n > len(run.rows.step))
    return often or "none"
