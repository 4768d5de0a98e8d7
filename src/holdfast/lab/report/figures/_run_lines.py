"""Lines of runs: a metric over time, and its last value over a setting."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import final

from holdfast.lab.records import Summary
from holdfast.lab.report._collection import Collection
from holdfast.lab.report._formatting import DIVERGED, number
from holdfast.lab.report._outcome import outcome, with_range
from holdfast.lab.report.figures._chart import Chart, absent, chart_of
from holdfast.lab.report.figures._line_panel import Cross, LinePanel, Spot, Trace, remarks_of
from holdfast.lab.report.figures._metrics import QUANTITIES, REMARK, Quantity, step_times
from holdfast.lab.report.figures._views import Curves, Lines, Points, Runs, Scale

CUT = (
    "Where a run diverged, losses above one and a half times the greatest of the other runs are "
    "drawn at the top."
)

WIDE = 1000.0
"""Ratio of the largest to the smallest value from which on an axis is logarithmic."""

BEYOND = 1.5
"""Times the greatest loss of runs that did not diverge, above which those that did are cut."""

MAX_TICKS = 6


@final
@dataclass(frozen=True)
class TimeAxis:
    """The horizontal axis of curves: seconds per step by the hash of the run, or None for steps."""

    seconds: Mapping[str, float] | None

    def x(self, run: Summary, step: int) -> float:
        """Return the coordinate of a run's step."""
        return float(step * (1 if self.seconds is None else self.seconds[run.hash]))

    def at(self, x: float) -> str:
        """Format a coordinate."""
        return f"step {number(x)}" if self.seconds is None else f"{number(x)} s"


def curves(view: Curves, collection: Collection) -> Chart:
    """Draw the mean over the seeds that ended, in a band from the smallest to the largest value.

    Runs are drawn separately if one of them diverged (a cross ends its line), if all are
    unfinished, or if they were evaluated at different steps.
    """
    runs = [key for lines in view.panels.values() for some in lines.values() for key in some]
    present = [collection.runs[key] for key in dict.fromkeys(runs) if key in collection.runs]
    axis = TimeAxis(None if view.x == "step" else _seconds_per_step(present))
    made = [
        _curve_panel(QUANTITIES[view.y], axis, title, lines, collection)
        for title, lines in view.panels.items()
    ]
    panels = tuple(panel for panel in made if panel.labels)
    remarks = [REMARK] if axis.seconds is not None and len(present) > 1 else []
    remarks += [CUT] if view.y == "loss" and any(panel.crosses for panel in panels) else []
    return chart_of(view, panels, [*remarks, *remarks_of(panels), *absent(collection, runs)])


def _seconds_per_step(runs: list[Summary]) -> dict[str, float]:
    """Return the time per step without evaluations and without attacks."""
    return {
        key: sum(seconds for part, seconds in parts.items() if part not in ("attack", "evaluation"))
        for key, parts in step_times(runs).items()
    }


def _curve_panel(
    quantity: Quantity, axis: TimeAxis, title: str, lines: Lines, collection: Collection
) -> LinePanel:
    traces, crosses = [], []
    for label, hashes in lines.items():
        runs = _shown(hashes, collection)
        together = all(run.has_ended and not run.has_diverged for run in runs)
        groups = [runs] if together and _have_same_steps(quantity, runs) else [[r] for r in runs]
        pieces = [tuple(_spots(quantity, axis, group)) for group in groups]
        lost = _crosses(quantity, axis, label, runs)
        crosses += lost
        if any(pieces) or lost:
            traces.append(Trace(label=label, pieces=tuple(piece for piece in pieces if piece)))
    if quantity.key == "loss":
        traces, crosses = _cut(traces, crosses)
    return LinePanel(
        title=title,
        x_label="step" if axis.seconds is None else "training time (s)",
        y_label=quantity.label,
        y_scale=_scale(quantity, traces),
        traces=tuple(traces),
        crosses=tuple(crosses),
        bounds=quantity.bounds,
    )


def _cut(traces: list[Trace], crosses: list[Cross]) -> tuple[list[Trace], list[Cross]]:
    """Draw losses at the top of the axes where a run that diverged leaves the others far behind."""
    lost = {cross.label for cross in crosses}
    values = [spot.y for trace in traces if trace.label not in lost for spot in trace.spots]
    limit = BEYOND * max(values, default=math.inf)
    cut = [
        tuple(
            tuple(replace(spot, y=min(spot.y, limit)) for spot in piece) for piece in trace.pieces
        )
        for trace in traces
    ]
    kept = [replace(trace, pieces=some) for trace, some in zip(traces, cut, strict=True)]
    return kept, [replace(c, y=None if c.y is None else min(c.y, limit)) for c in crosses]


def _shown(hashes: Runs, collection: Collection) -> list[Summary]:
    present = [collection.runs[key] for key in hashes if key in collection.runs]
    return [run for run in present if run.has_ended] or present


def _have_same_steps(quantity: Quantity, runs: list[Summary]) -> bool:
    return len({tuple(step for step, _ in quantity.over_steps(run)) for run in runs}) == 1


def _spots(quantity: Quantity, axis: TimeAxis, runs: list[Summary]) -> Iterator[Spot]:
    """Yield the means over runs that have values at the same steps."""
    for pairs in zip(*(quantity.over_steps(run) for run in runs), strict=True):
        values = [value for _, value in pairs]
        x = fmean(axis.x(run, step) for run, (step, _) in zip(runs, pairs, strict=True))
        says = with_range(values, quantity.form) + ("" if runs[0].has_ended else " (unfinished)")
        low, high = (min(values), max(values)) if len(values) > 1 else (None, None)
        yield Spot(x=x, y=fmean(values), low=low, high=high, at=axis.at(x), says=says)


def _crosses(quantity: Quantity, axis: TimeAxis, label: str, runs: list[Summary]) -> list[Cross]:
    """Return a cross at the end of each line that diverged, and one for all runs without a line."""
    crosses, lineless = [], []
    for run in (run for run in runs if run.has_diverged):
        values = quantity.over_steps(run)
        if values:
            x, y = axis.x(run, values[-1][0]), values[-1][1]
            says = f"{DIVERGED} at step {run.n_steps}"
            crosses.append(Cross(label=label, x=x, y=y, at=axis.at(x), says=says))
        else:
            lineless.append(run)
    if lineless:
        first = min(lineless, key=lambda run: run.n_steps)
        x = axis.x(first, first.n_steps)
        many = f"{len(lineless)} of {len(runs)} {DIVERGED}, the first"
        says = f"{many if len(runs) > 1 else DIVERGED} at step {first.n_steps}"
        crosses.append(Cross(label=label, x=x, at=axis.at(x), says=says))
    return crosses


def _scale(quantity: Quantity, traces: list[Trace]) -> Scale:
    values = [spot.y for trace in traces for spot in trace.spots]
    is_wide = bool(values) and min(values) > 0 and max(values) > WIDE * min(values)
    return "log" if is_wide and quantity.bounds is None else "linear"


def points(view: Points, collection: Collection) -> Chart:
    """Draw the mean with its range over the seeds; a cross where a seed diverged."""
    places = [by_x for lines in view.panels.values() for by_x in lines.values()]
    runs = [key for by_x in places for hashes in by_x.values() for key in hashes]
    made = [_point_panel(view, title, lines, collection) for title, lines in view.panels.items()]
    panels = tuple(panel for panel in made if panel.labels)
    return chart_of(view, panels, [*remarks_of(panels), *absent(collection, runs)])


def _point_panel(
    view: Points, title: str, lines: Mapping[str, Mapping[float, Runs]], collection: Collection
) -> LinePanel:
    quantity = QUANTITIES[view.y]
    traces: list[Trace] = []
    crosses: list[Cross] = []
    for label, by_x in lines.items():
        pieces, ends = _point_line(view, label, by_x, collection)
        crosses += ends
        traces += [Trace(label=label, pieces=pieces)] if pieces or ends else []
    places = sorted({float(x) for by_x in lines.values() for x in by_x})
    return LinePanel(
        title=title,
        x_label=view.x_label,
        y_label=quantity.label,
        x_scale=view.x_scale,
        ticks=tuple(places) if len(places) <= MAX_TICKS else (),
        traces=tuple(traces),
        crosses=tuple(crosses),
        spread="bars",
        bounds=quantity.bounds,
    )


def _point_line(
    view: Points, label: str, by_x: Mapping[float, Runs], collection: Collection
) -> tuple[tuple[tuple[Spot, ...], ...], list[Cross]]:
    """Return the pieces of a line, which is cut at divergences, and the crosses there."""
    quantity = QUANTITIES[view.y]
    pieces: list[list[Spot]] = [[]]
    crosses = []
    for x, hashes in sorted((float(x), hashes) for x, hashes in by_x.items()):
        result = outcome(collection, hashes, quantity.at_the_end)
        at, says = f"{view.x_label} {number(x)}", result.words(quantity.form)
        if result.mean is not None:
            low, high = result.range or (None, None)
            pieces[-1].append(Spot(x=x, y=result.mean, low=low, high=high, at=at, says=says))
        elif result.state == "diverged":
            crosses.append(Cross(label=label, x=x, at=at, says=says))
            pieces.append([])
    return tuple(tuple(piece) for piece in pieces if piece), crosses
