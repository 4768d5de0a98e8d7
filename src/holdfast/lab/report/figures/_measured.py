"""Measured values: lines over a varied quantity, and tables."""

import math
from collections.abc import Mapping
from statistics import linear_regression
from typing import Any

from holdfast.lab.report._collection import Collection
from holdfast.lab.report._formatting import number
from holdfast.lab.report.figures._chart import Chart, DataTable, chart_of, not_yet
from holdfast.lab.report.figures._line_panel import LinePanel, Spot, Trace
from holdfast.lab.report.figures._views import Measured, MeasuredPanel, MeasuredValue, ValueTable

NOT_MEASURED = "not measured"

Exponents = dict[str, tuple[float, int]]
"""Label to the exponent and the number of points of the fit."""


def measured(view: Measured, collection: Collection) -> Chart:
    """Draw lines through values; on two logarithmic axes, with fitted exponents."""
    lines = [by_x for panel in view.panels for by_x in panel.lines.values()]
    values = [_number(value, collection) for by_x in lines for value in by_x.values()]
    panels, tables = [], []
    for panel in view.panels:
        made = [_trace(panel, label, by_x, collection) for label, by_x in panel.lines.items()]
        traces = [trace for trace in made if trace.pieces]
        fitted = _exponents(traces) if panel.x_scale == panel.y_scale == "log" else {}
        tables += [_exponent_table(panel.title, fitted)] if fitted else []
        panels += [_panel(panel, traces, fitted)] if traces else []
    remarks = not_yet(values.count(None), len(values), "value")
    return chart_of(view, panels, remarks, keys="Lines", tables=tuple(tables))


def value_table(view: ValueTable, collection: Collection) -> Chart:
    """Make a chart without a drawing, with one table."""
    wanted = [
        cell for cells in view.rows.values() for cell in cells if isinstance(cell, MeasuredValue)
    ]
    missing = sum(_text(cell, collection) == NOT_MEASURED for cell in wanted)
    remarks = not_yet(missing, len(wanted), "value")
    if missing and missing == len(wanted):
        return chart_of(view, remarks=remarks)
    rows = tuple(
        (label, *(_text(cell, collection) for cell in cells)) for label, cells in view.rows.items()
    )
    table = DataTable(caption=view.title, columns=("", *view.columns), rows=rows)
    return chart_of(view, remarks=remarks, tables=(table,))


def _value(value: MeasuredValue, collection: Collection) -> Any:
    """Return the value, or NOT_MEASURED."""
    record = collection.measurements.get(value.measurement)
    node: Any = None if record is None else record.result
    for key in value.value.split("."):
        if not isinstance(node, dict) or key not in node:
            return NOT_MEASURED
        node = node[key]
    return node


def _number(value: MeasuredValue, collection: Collection) -> float | None:
    found = _value(value, collection)
    is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
    return float(found) if is_number and math.isfinite(found) else None


def _text(cell: MeasuredValue | str, collection: Collection) -> str:
    if isinstance(cell, str):
        return cell
    found, as_number = _value(cell, collection), _number(cell, collection)
    if found is None:
        return "none"
    return str(found) if as_number is None else number(as_number)


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
    panel: MeasuredPanel, label: str, by_x: Mapping[float, MeasuredValue], collection: Collection
) -> Trace:
    """Return the points that were measured and that the axes can show."""
    spots = []
    for x, measured_value in sorted(by_x.items(), key=lambda pair: pair[0]):
        value = _number(measured_value, collection)
        is_left_out = (panel.x_scale == "log" and x <= 0) or (
            panel.y_scale == "log" and value is not None and value <= 0
        )
        if value is not None and not is_left_out:
            at = f"{panel.x_label} {number(x)}"
            spots.append(Spot(x=x, y=value, at=at, says=number(value)))
    return Trace(label=label, pieces=(tuple(spots),) if spots else ())


def _exponents(traces: list[Trace]) -> Exponents:
    """Fit the slope of the logarithms by least squares, for lines with at least two points."""
    fitted: Exponents = {}
    for trace in traces:
        x, y = zip(*((math.log(spot.x), math.log(spot.y)) for spot in trace.spots), strict=True)
        if len(set(x)) > 1:
            fitted[trace.label] = linear_regression(x, y).slope, len(x)
    return fitted


def _exponent_table(title: str, fitted: Exponents) -> DataTable:
    rows = tuple((label, f"{exponent:.2f}", str(n)) for label, (exponent, n) in fitted.items())
    caption = f"{title}: fitted exponents" if title else "Fitted exponents"
    return DataTable(caption=caption, columns=("line", "exponent", "points"), rows=rows)
