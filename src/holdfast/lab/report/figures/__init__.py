"""The figures of a report: what each view shows, and how it is drawn for a file or for the page."""

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.lab.records.views import (
    Curves,
    Measured,
    Pictures,
    Points,
    RowWeights,
    Scatter,
    TimeSplit,
    ValueTable,
    View,
)
from holdfast.lab.report._collection import Collection
from holdfast.lab.report.figures._chart import Chart
from holdfast.lab.report.figures._curves import curves
from holdfast.lab.report.figures._export import FORMATS, export
from holdfast.lab.report.figures._inline import inline, sample
from holdfast.lab.report.figures._measured import measured
from holdfast.lab.report.figures._metrics import accuracy_in_percent
from holdfast.lab.report.figures._panel import DataTable
from holdfast.lab.report.figures._pictures import pictures
from holdfast.lab.report.figures._points import points
from holdfast.lab.report.figures._row_weights import row_weights
from holdfast.lab.report.figures._scatter import scatter
from holdfast.lab.report.figures._time_split import time_split
from holdfast.lab.report.figures._values import values

__all__ = [
    "FORMATS",
    "Chart",
    "DataTable",
    "accuracy_in_percent",
    "chart",
    "export",
    "inline",
    "sample",
]

CHARTS: Mapping[str, Callable[[Any, Collection], Chart]] = {
    Curves.kind: curves,
    Points.kind: points,
    Measured.kind: measured,
    ValueTable.kind: values,
    Scatter.kind: scatter,
    Pictures.kind: pictures,
    RowWeights.kind: row_weights,
    TimeSplit.kind: time_split,
}


def chart(view: View, found: Collection) -> Chart:
    """The figure that a view is."""
    return CHARTS[view.kind](view, found)
