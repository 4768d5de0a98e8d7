"""Tables and figures of runs without a study."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from holdfast.lab.config import format_average
from holdfast.lab.records import Summary
from holdfast.lab.report._collection import Collection
from holdfast.lab.report._comparison import Comparison, Contender, told
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
from holdfast.lab.report.figures import (
    Cell,
    Chart,
    Curves,
    DataTable,
    Grid,
    RowWeights,
    chart,
    heat_map,
)
from holdfast.lab.report.figures._metrics import accuracy_in_percent
from holdfast.lab.report.figures._row_weights import MIN_STEPS

DESCRIBED = (
    *("model", "data", "n_steps", "workers", "n_rows", "row_size"),
    *("optimizer.name", "optimizer.lr", "optimizer.momentum"),
)
"""Fields that the description names if all runs have them in common."""

LEAST = "least over attacks"

ALL_RUNS = "All runs"
"""Title of the table with one line per setting."""

NONE = "—"
"""Shown where there is nothing."""

MAX_WEIGHTED = 6
"""Runs whose weights of rows are drawn."""

_NUMERIC = re.compile(r"[\d.,%e+— -]*( to [\d.]+)?")

Labels = Mapping[str, str]
"""The label of each run by its hash."""


def about_runs(groups: Sequence[RunGroup]) -> str:
    """Describe what all groups have in common."""
    names = [name for name in DESCRIBED if len({g.settings.get(name) for g in groups}) == 1]
    words = told(groups[0], names, names) if groups else []
    words = [word for word in words if word != "momentum 0.0"]
    shares = {group.settings["bad"] for group in groups if group.is_attacked}
    if len(shares) == 1 and "" not in shares:
        words.append(f"{shares.pop()} bad under attack")
    words += _tested(groups)
    seeds = {_seeds(group) for group in groups}
    words += seeds if len(seeds) == 1 else []
    return f"{', '.join(words)}." if words else ""


def run_items(
    groups: Sequence[RunGroup], comparison: Comparison, collection: Collection
) -> tuple[Grid | Chart | DataTable, ...]:
    """Return all tables and figures, the most important first."""
    labels = {
        key: one.label
        for one in comparison.contenders
        for some in one.runs.values()
        for key in some
    }
    order = [one.label for one in comparison.contenders]
    groups = sorted(groups, key=lambda group: order.index(labels[group.hashes[0]]))
    table = run_table(groups, labels)
    first = heat_map(accuracy_map(comparison)) if comparison.is_table else table
    items = [first, chart(run_curves(groups, comparison, labels), collection)]
    crews = [group for group in groups if "workers" in group.settings]
    if crews:
        items.append(worker_table(crews, comparison, labels))
    weighted = [
        group
        for group in crews
        if group.is_attacked and len(group.runs[0].rows.weights or ()) >= MIN_STEPS
    ]
    if weighted:
        items.append(chart(_weights(weighted, comparison, labels), collection))
    return (*items, table) if comparison.is_table else tuple(items)


def accuracy_map(comparison: Comparison) -> Grid:
    """Make the table of all contenders under all threats, with the least over the attacks."""
    judged = comparison.judged
    is_judged = len(judged) > 1
    columns = (*comparison.threats, *([LEAST] if is_judged else []))
    found = [
        [
            *(one.outcomes.get(threat, Outcome(n_wanted=0)) for threat in comparison.threats),
            *([_least(one, judged)] if is_judged else []),
        ]
        for one in comparison.contenders
    ]
    tops = [max(line[j].height for line in found) for j in range(len(columns))]
    lines = [
        (one.label, tuple(_cell(cell, top) for cell, top in zip(line, tops, strict=True)))
        for one, line in zip(comparison.contenders, found, strict=True)
    ]
    caption = "Mean over the seeds in percent, and their range in small print."
    return Grid(
        title="Final test accuracy (%)",
        note="",
        caption=f"{caption} Deeper is more accurate; the best of a column is bold.",
        columns=tuple((name, False) for name in columns),
        groups=(("", tuple(lines)),),
        settings={one.label: one.setting for one in comparison.contenders if one.setting},
    )


def _least(contender: Contender, judged: Sequence[str]) -> Outcome:
    worst = contender.worst(judged)
    return Outcome(n_wanted=0) if worst is None else contender.outcomes[worst]


def _cell(result: Outcome, top: float) -> Cell:
    is_best = result.mean is not None and percent(result.mean) == percent(top)
    return Cell(
        text=result.text() if result.n_wanted else NONE,
        detail=result.detail(),
        state=result.state,
        is_best=is_best,
        value=result.mean,
    )


def run_table(groups: Sequence[RunGroup], labels: Labels) -> DataTable:
    """Make a table with one line per group, and columns for what differs between groups."""
    names = [name for name in NAMED if name == "rule" or _differ(groups, name)]
    names += differing(groups)
    shown = short_names(names)
    columns: dict[str, list[str]] = {
        short: [group.settings.get(name, "") for group in groups]
        for short, name in zip(shown, names, strict=True)
    }
    results = [_outcome(group) for group in groups]
    columns["seeds"] = [_seeds(group) for group in groups]
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
    threats = _threats(comparison)
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


def run_curves(groups: Sequence[RunGroup], comparison: Comparison, labels: Labels) -> Curves:
    """Make curves with a panel per threat, data set and model, and a line per contender."""
    threats = _threats(comparison)
    panels: dict[str, dict[str, tuple[str, ...]]] = {}
    places = [name for name in ("data", "model") if _differ(groups, name)]
    for group in sorted(
        groups, key=lambda group: comparison.threats.index(threats[group.hashes[0]])
    ):
        words = [group.settings.get(name, "") for name in places]
        title = ", ".join([threats[group.hashes[0]], *filter(None, words)])
        lines = panels.setdefault(title, {})
        label = labels[group.hashes[0]]
        lines[label] = (*lines.get(label, ()), *group.hashes)
    has_curves = any(len(run.evaluations) > 1 for group in groups for run in group.runs)
    if has_curves:
        return Curves(title="Test accuracy over the steps", x="step", y="accuracy", panels=panels)
    title = "Training loss over the steps"
    note = "Of the honest rows. The runs were evaluated at the end only."
    return Curves(title=title, note=note, x="step", y="loss", panels=panels)


def _weights(groups: Sequence[RunGroup], comparison: Comparison, labels: Labels) -> RowWeights:
    threats = _threats(comparison)
    shown = [group.hashes[0] for group in groups][:MAX_WEIGHTED]
    note = (
        "Of the first seed. A dot marks a bad worker, who has no color without weight. Bad workers "
        "who stay close together may carry most of the weight although the result stays near the "
        "honest rows."
    )
    if len(groups) > len(shown):
        note += (
            f" Shown are the first {len(shown)} of {len(groups)} combinations of rule and attack; "
            f'the table "{ALL_RUNS}" has the mean weight of bad rows for each.'
        )
    return RowWeights(
        title="Weight given to each worker",
        note=note,
        panels={f"{labels[key]}, {threats[key]}": key for key in shown},
    )


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


def _threats(comparison: Comparison) -> dict[str, str]:
    """Return the threat of each run by its hash."""
    pairs = [pair for one in comparison.contenders for pair in one.runs.items()]
    return {key: threat for threat, some in pairs for key in some}


def _differ(groups: Sequence[RunGroup], name: str) -> bool:
    return len({group.settings.get(name) for group in groups}) > 1


def _seeds(group: RunGroup) -> str:
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


def _tested(groups: Sequence[RunGroup]) -> list[str]:
    """Say that a mean of the parameters was tested, if it was the same mean in all groups."""
    weights: list[Any] = [run.config.get("average") for group in groups for run in group.runs]
    is_same = all(isinstance(one, float) and 0 < one < 1 and one == weights[0] for one in weights)
    return [f"tested: {format_average(weights[0])}"] if weights and is_same else []


def _mostly(run: Summary, name: str) -> str:
    """Return the rows that are listed at more than half of the recorded steps."""
    listed: Iterable[Sequence[int]] = getattr(run.rows, name)
    counts = Counter(row for some in listed for row in some)
    often = ranges(row for row, n in counts.items() if 2 * n > len(run.rows.step))
    return often or "none"
