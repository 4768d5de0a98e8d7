"""What happened over time."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import final

from holdfast.lab.records import Summary
from holdfast.lab.report._collection import Collection
from holdfast.lab.report._words import DIVERGED, number
from holdfast.lab.report.figures._chart import Chart, absent
from holdfast.lab.report.figures._line_panel import Cross, LinePanel, Spot, Trace, remarks_of
from holdfast.lab.report.figures._metrics import QUANTITIES, Quantity
from holdfast.lab.report.figures._step_times import REMARK, step_times
from holdfast.lab.report.figures._views import Curves, Lines, Runs, Scale

WIDE = 1000.0
"""What goes over more than this factor is shown on a logarithmic axis."""


@final
@dataclass(frozen=True)
class TimeAxis:
    """Where a step stands on the axis.

    Args:
        seconds: what a step takes each run, by its hash; None if the axis has steps.
    """

    seconds: Mapping[str, float] | None

    @property
    def label(self) -> str:
        """Of the axis."""
        return "step" if self.seconds is None else "training time (s)"

    def x(self, run: Summary, step: int) -> float:
        """The place of a run's step."""
        return step * (1.0 if self.seconds is None else self.seconds[run.hash])

    def at(self, x: float) -> str:
        """A place in words."""
        return f"step {number(x)}" if self.seconds is None else f"{number(x)} s"


def curves(view: Curves, found: Collection) -> Chart:
    """The mean over the seeds that ended, in a band from the least to the greatest.

    Where a seed diverged there is no mean: each of the runs is drawn for itself, and a cross ends those that diverged. Unfinished runs are
    drawn, each for itself, where none has ended.
    """
    runs = [key for lines in view.panels.values() for line in lines.values() for key in line]
    there = [found.runs[key] for key in dict.fromkeys(runs) if key in found.runs]
    axis = TimeAxis(None if view.x == "step" else _seconds_per_step(there))
    panels = tuple(
        panel
        for panel in (
            _panel(QUANTITIES[view.y], axis, title, lines, found)
            for title, lines in view.panels.items()
        )
        if panel.labels
    )
    remarks = [REMARK] if axis.seconds is not None and len(there) > 1 else []
    return Chart(
        kind=view.kind,
        title=view.title,
        note=view.note,
        panels=panels,
        remarks=(*remarks, *remarks_of(panels), *absent(found, runs)),
    )


def _seconds_per_step(runs: list[Summary]) -> dict[str, float]:
    """Without evaluations, and without what the attackers do."""
    return {
        key: sum(seconds for part, seconds in parts.items() if part not in ("attack", "evaluation"))
        for key, parts in step_times(runs).items()
    }


def _panel(
    quantity: Quantity, axis: TimeAxis, title: str, lines: Lines, found: Collection
) -> LinePanel:
    traces, crosses = [], []
    for label, runs in lines.items():
        shown = _shown(runs, found)
        if any(run.has_diverged for run in shown) or not all(run.has_ended for run in shown):
            pieces = [_spots(quantity, axis, [run]) for run in shown]
            lost = _crosses(quantity, axis, label, shown)
        else:
            pieces, lost = [_spots(quantity, axis, shown)], []
        crosses += lost
        if any(pieces) or lost:
            traces.append(Trace(label=label, pieces=tuple(piece for piece in pieces if piece)))
    return LinePanel(
        title=title,
        x_label=axis.label,
        y_label=quantity.label,
        y_scale=_scale(quantity, traces),
        traces=tuple(traces),
        crosses=tuple(crosses),
        bounds=quantity.bounds,
    )


def _shown(runs: Runs, found: Collection) -> list[Summary]:
    there = [found.runs[key] for key in runs if key in found.runs]
    return [run for run in there if run.has_ended] or there


def _spots(quantity: Quantity, axis: TimeAxis, runs: list[Summary]) -> tuple[Spot, ...]:
    """The mean over the runs at each step at which all of them have a value."""
    values = [dict(quantity.over_steps(run)) for run in runs]
    steps = sorted(set.intersection(*map(set, values))) if values else []
    return tuple(
        _spot(quantity, axis, runs, step, [by_step[step] for by_step in values]) for step in steps
    )


def _spot(
    quantity: Quantity, axis: TimeAxis, runs: list[Summary], step: int, values: list[float]
) -> Spot:
    x = fmean(axis.x(run, step) for run in runs)
    says = quantity.form(fmean(values))
    if len(values) == 1:
        state = "" if runs[0].has_ended else " (unfinished)"
        return Spot(x=x, y=values[0], at=axis.at(x), says=says + state)
    low, high = min(values), max(values)
    return Spot(
        x=x,
        y=fmean(values),
        low=low,
        high=high,
        at=axis.at(x),
        says=f"{says} ({quantity.form(low)} to {quantity.form(high)})",
    )


def _crosses(quantity: Quantity, axis: TimeAxis, label: str, runs: list[Summary]) -> list[Cross]:
    """One at the end of each line that diverged, and one at the bottom for all runs that diverged before they had a line."""
    crosses, lineless = [], []
    for run in (run for run in runs if run.has_diverged):
        values = quantity.over_steps(run)
        if values:
            x = axis.x(run, values[-1][0])
            says = f"{DIVERGED} at step {run.content['n_steps']}"
            crosses.append(Cross(label=label, x=x, y=values[-1][1], at=axis.at(x), says=says))
        else:
            lineless.append(run)
    if lineless:
        first = min(lineless, key=lambda run: run.content["n_steps"])
        x = axis.x(first, first.content["n_steps"])
        many = (
            f"{len(lineless)} of {len(runs)} {DIVERGED}, the first" if len(runs) > 1 else DIVERGED
        )
        crosses.append(
            Cross(
                label=label, x=x, at=axis.at(x), says=f"{many} at step {first.content['n_steps']}"
            )
        )
    return crosses


def _scale(quantity: Quantity, traces: list[Trace]) -> Scale:
    values = [spot.y for trace in traces for piece in trace.pieces for spot in piece]
    is_wide = bool(values) and min(values) > 0 and max(values) > WIDE * min(values)
    return "log" if is_wide and quantity.bounds is None else "linear"
