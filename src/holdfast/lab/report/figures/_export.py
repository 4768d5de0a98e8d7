"""A figure as files, with all panels in one."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from holdfast.lab.records import write_atomically
from holdfast.lab.report._colors import PRINT
from holdfast.lab.report._looks import Look
from holdfast.lab.report.figures._chart import Chart
from holdfast.lab.report.figures._panel import Panel, Pens, Shape
from holdfast.lab.report.figures._style import style

FORMATS: Mapping[str, Mapping[str, Any]] = {
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""The formats, and what each must not tell so that two files of the same figure are the same."""

PANEL_WIDTH = 3.3
SINGLE_WIDTH = 4.6
MOST_COLUMNS = 3


def export(
    chart: Chart, looks: Mapping[str, Look], stem: Path, formats: Sequence[str]
) -> list[Path]:
    """Write `stem.svg` and the like; returns the paths."""
    paths = []
    pens = Pens(looks, PRINT)
    with style(PRINT, size=8.5):
        figure = _figure(chart, pens)
        for name in formats:
            path = stem.with_name(f"{stem.name}.{name}")
            save = partial(
                figure.savefig,
                format=name,
                metadata=dict(FORMATS[name]),
                facecolor=PRINT["paper"],
                dpi=160,
            )
            write_atomically(path, save)
            paths.append(path)
    return paths


def _figure(chart: Chart, pens: Pens) -> Figure:
    n = len(chart.panels)
    n_columns = n if n <= MOST_COLUMNS else 2 if n == 4 else MOST_COLUMNS
    n_lines = math.ceil(n / n_columns)
    width = SINGLE_WIDTH if n == 1 else PANEL_WIDTH * n_columns
    height = max(panel.height for panel in chart.panels) * width / n_columns + 0.2
    labels = _shared_labels(chart)
    n_keys = max(1, int(width / (0.6 + 0.065 * max((len(label) for label in labels), default=0))))
    figure = Figure(
        (width, n_lines * height + 0.22 * math.ceil(len(labels) / n_keys)), layout="constrained"
    )
    for i, panel in enumerate(chart.panels):
        axes = figure.add_subplot(n_lines, n_columns, i + 1)
        panel.draw(axes, pens)
        axes.set_title(textwrap.fill(panel.title, 38))
        if panel.legend:
            _own_legend(panel, axes, pens)
    if labels:
        handles = [_handle(shape, pens, label) for label, shape in labels.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=min(len(labels), n_keys))
    return figure


def _shared_labels(chart: Chart) -> Mapping[str, Shape]:
    """Those that stand below the figure, unless panels have something to say about them."""
    return {} if any(panel.legend for panel in chart.panels) else chart.labels


def _own_legend(panel: Panel, axes: Axes, pens: Pens) -> None:
    texts = {
        label: f"{label}, {panel.legend[label]}" if label in panel.legend else label
        for label in panel.labels
    }
    handles = [_handle(shape, pens, label, texts[label]) for label, shape in panel.labels.items()]
    axes.legend(handles=handles, loc="best", fontsize="x-small")


def _handle(shape: Shape, pens: Pens, label: str, text: str | None = None) -> Artist:
    """A sample of how a label is drawn."""
    pen = pens[label]
    name = (label if text is None else text).lstrip("_")  # matplotlib hides what begins with one
    if shape == "patch":
        return Patch(color=pen.color, linewidth=0, label=name)
    if shape == "frame":
        return Patch(edgecolor=pen.color, fill=False, linewidth=1.2, label=name)
    dashes = "none" if shape == "marker" else pen.dashes
    return Line2D(
        [],
        [],
        color=pen.color,
        linestyle=dashes,
        marker=pen.marker,
        markersize=4,
        linewidth=1.6,
        label=name,
    )
