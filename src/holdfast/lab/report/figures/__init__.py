"""The figures of a report: views in, charts out, drawn for a file or for the page."""

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.lab.report._collection import Collection
from holdfast.lab.report.figures._chart import Chart, DataTable
from holdfast.lab.report.figures._grid import Cell, Grid
from holdfast.lab.report.figures._heat_map import heat_map
from holdfast.lab.report.figures._measured import measured, value_table
from holdfast.lab.report.figures._pictures import pictures
from holdfast.lab.report.figures._row_weights import row_weights
from holdfast.lab.report.figures._run_lines import curves, points
from holdfast.lab.report.figures._scatter import scatter
from holdfast.lab.report.figures._time_split import time_split
from holdfast.lab.report.figures._views import (
    AccuracyTable,
    Curves,
    Lines,
    Measured,
    MeasuredPanel,
    MeasuredValue,
    Metric,
    PaperCell,
    Pictures,
    Points,
    RowWeights,
    Runs,
    Scatter,
    TableRow,
    TimeSplit,
    ValueTable,
    View,
)

__all__ = [
    "AccuracyTable",
    "Cell",
    "Chart",
    "Curves",
    "DataTable",
    "Grid",
    "Lines",
    "Measured",
    "MeasuredPanel",
    "MeasuredValue",
    "Metric",
    "PaperCell",
    "Pictures",
    "Points",
    "RowWeights",
    "Runs",
    "Scatter",
    "TableRow",
    "TimeSplit",
    "ValueTable",
    "View",
    "chart",
    "heat_map",
]

CHARTS: Mapping[type[View], Callable[[Any, Collection], Chart]] = {
    Curves: curves,
    Points: points,
    Measured: measured,
    ValueTable: value_table,
    Scatter: scatter,
    Pictures: pictures,
    RowWeights: row_weights,
    TimeSplit: time_split,
}


def chart(view: View, collection: Collection) -> Chart:
    """Return the figure that shows `view`; an :class:`AccuracyTable` is made by `grid`."""
    return CHARTS[type(view)](view, collection)
