"""Measured values over something that was varied."""

import math
from collections.abc import Mapping
from statistics import linear_regression

from holdfast.lab.report._collection import Collection
from holdfast.lab.report._words import number
from holdfast.lab.report.figures._chart import Chart, not_yet
from holdfast.lab.report.figures._line_panel import LinePanel, Spot, Trace
from holdfast.lab.report.figures._panel import DataTable
from holdfast.lab.report.figures._views import Measured, MeasuredPanel, MeasuredValue

Exponents = dict[str, tuple[float, int]]
"""Label to the exponent and how many points it was fitted to."""


def measured(view: Measured, found: Collection) -> Chart:
    """Lines through the values; where both axes are logarithmic, with the exponent that fits each best."""
    wanted = [
        value for panel in view.panels for line in panel.lines.values() for value in line.values()
    ]
    missing = sum(_value(value, found) is None for value in wanted)
    panels, tables = [], []
    for panel in view.panels:
        traces = [
            trace
            for trace in (_trace(panel, *line, found) for line in panel.lines.items())
            if trace.pieces
        ]
        fitted = _exponents(traces) if panel.x_scale == panel.y_scale == "log" else {}
        if fitted:
            tables.append(_exponent_table(panel.title, fitted))
        if traces:
            panels.append(_panel(panel, traces, fitted))
    return Chart(
        kind=view.kind,
        title=view.title,
        note=view.note,
        panels=tuple(panels),
        remarks=not_yet(missing, len(wanted), "value"),
        keys="Lines",
        tables=tuple(tables),
    )


def _panel(panel: MeasuredPanel, traces: list[Trace], fitted: Exponents) -> LinePanel:
    return LinePanel(
        title=panel.title,
        x_label=panel.x_label,
        y_label=panel.y_label,
        x_scale=panel.x_scale,
        y_scale=panel.y_scale,
        traces=tuple(traces),
        legend={label: f"exponent {exponent:.2f}" for label, (exponent, _) in fitted.items()},
    )


def _trace(
    panel: MeasuredPanel, label: str, line: Mapping[float, MeasuredValue], found: Collection
) -> Trace:
    """The points that are there and that the axes can show."""
    spots = []
    for x in sorted(line):
        value = _value(line[x], found)
        if (
            value is None
            or (panel.x_scale == "log" and x <= 0)
            or (panel.y_scale == "log" and value <= 0)
        ):
            continue
        spots.append(Spot(x=x, y=value, at=f"{panel.x_label} {number(x)}", says=number(value)))
    return Trace(label=label, pieces=(tuple(spots),) if spots else ())


def _value(wanted: MeasuredValue, found: Collection) -> float | None:
    record = found.measurements.get(wanted.measurement)
    value = None if record is None else record.result.get(wanted.value)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None  # type: ignore[arg-type]


def _exponents(traces: list[Trace]) -> Exponents:
    """The slope of the least-squares line through the logarithms, for lines with two places or more."""
    fitted: Exponents = {}
    for trace in traces:
        spots = trace.pieces[0]
        if len({spot.x for spot in spots}) > 1:
            line = linear_regression(
                [math.log(spot.x) for spot in spots], [math.log(spot.y) for spot in spots]
            )
            fitted[trace.label] = line.slope, len(spots)
    return fitted


def _exponent_table(title: str, fitted: Exponents) -> DataTable:
    rows = tuple((label, f"{exponent:.2f}", str(n)) for label, (exponent, n) in fitted.items())
    return DataTable(
        caption=f"{title}: fitted exponents" if title else "Fitted exponents",
        columns=("line", "exponent", "points"),
        rows=rows,
    )
