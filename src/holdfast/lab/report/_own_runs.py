"""Tables and figures of runs without a study."""

from collections.abc import Sequence
from typing import Any

from holdfast.lab.config import format_average
from holdfast.lab.report._collection import Collection
from holdfast.lab.report._comparison import Comparison, Contender, told
from holdfast.lab.report._formatting import percent
from holdfast.lab.report._outcome import Outcome
from holdfast.lab.report._run_groups import RunGroup
from holdfast.lab.report._run_tables import (
    ALL_RUNS,
    NONE,
    Labels,
    is_different,
    run_table,
    seeds_of,
    threats_of,
    worker_table,
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
from holdfast.lab.report.figures._row_weights import MIN_STEPS

DESCRIBED = (
    *("model", "data", "n_steps", "workers", "n_rows", "row_size"),
    *("optimizer.name", "optimizer.lr", "optimizer.momentum"),
)
"""Fields that the description names if all runs have them in common."""

LEAST = "least over attacks"

MAX_WEIGHTED = 6
"""Runs whose weights of rows are drawn."""


def about_runs(groups: Sequence[RunGroup]) -> str:
    """Describe what all groups have in common."""
    names = [name for name in DESCRIBED if len({g.settings.get(name) for g in groups}) == 1]
    words = told(groups[0], names, names) if groups else []
    words = [word for word in words if word != "momentum 0.0"]
    shares = {group.settings["bad"] for group in groups if group.is_attacked}
    if len(shares) == 1 and "" not in shares:
        words.append(f"{shares.pop()} bad under attack")
    words += _tested(groups)
    seeds = {seeds_of(group) for group in groups}
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


def run_curves(groups: Sequence[RunGroup], comparison: Comparison, labels: Labels) -> Curves:
    """Make curves with a panel per threat, data set and model, and a line per contender."""
    threats = threats_of(comparison)
    panels: dict[str, dict[str, tuple[str, ...]]] = {}
    places = [name for name in ("data", "model") if is_different(groups, name)]
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
    threats = threats_of(comparison)
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


def _tested(groups: Sequence[RunGroup]) -> list[str]:
    """Say that a mean of the parameters was tested, if it was the same mean in all groups."""
    weights: list[Any] = [run.config.get("average") for group in groups for run in group.runs]
    is_same = all(isinstance(one, float) and 0 < one < 1 and one == weights[0] for one in weights)
    return [f"tested: {format_average(weights[0])}"] if weights and is_same else []
