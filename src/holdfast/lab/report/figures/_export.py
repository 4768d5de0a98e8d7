"""Figures as files."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from holdfast.lab.records import write_atomically
from holdfast.lab.report._series_style import PRINT, SeriesStyle, drawing_settings
from holdfast.lab.report.figures._chart import Chart, Pens, Shape

FORMATS: Mapping[str, Mapping[str, Any]] = {
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""Formats, with the metadata to leave out so that the same figure gives the same bytes."""

PANEL_WIDTH = 3.3
SINGLE_WIDTH = 4.6
MAX_COLUMNS = 3


def export(
    chart: Chart, styles: Mapping[str, SeriesStyle], stem: Path, formats: Sequence[str]
) -> list[Path]:
    """Write `stem.svg` and so on, with all panels in one file; returns the paths."""
    paths = [stem.with_name(f"{stem.name}.{name}") for name in formats]
    with drawing_settings(PRINT, size=8.5):
        figure = _figure(chart, Pens(styles, PRINT))
        for name, path in zip(formats, paths, strict=True):
            save = partial(figure.savefig, format=name, metadata=dict(FORMATS[name]), dpi=160)
            write_atomically(path, partial(save, facecolor=PRINT["paper"]))
    return paths


def _figure(chart: Chart, pens: Pens) -> Figure:
    n = len(chart.panels)
    n_columns = n if n <= MAX_COLUMNS else 2 if n == 4 else MAX_COLUMNS
    n_lines = math.ceil(n / n_columns)
    width = SINGLE_WIDTH if n == 1 else PANEL_WIDTH * n_columns
    height = max(panel.height for panel in chart.panels) * width / n_columns + 0.2
    # Panels with a legend of their own name the labels themselves.
    labels = {} if any(panel.legend for panel in chart.panels) else chart.labels
    longest = max((len(label) for label in labels), default=0)
    n_keys = max(1, int(width / (0.6 + 0.065 * longest)))
    legend_height = 0.22 * math.ceil(len(labels) / n_keys)
    figure = Figure((width, n_lines * height + legend_height), layout="constrained")
    for i, panel in enumerate(chart.panels, start=1):
        axes = figure.add_subplot(n_lines, n_columns, i)
        panel.draw(axes, pens)
        axes.set_title(textwrap.fill(panel.title, 38))
        if panel.legend:
            own = panel.legend
            texts = {x: f"{x}, {own[x]}" if x in own else x for x in panel.labels}
            handles = [_handle(panel.labels[x], pens, x, texts[x]) for x in panel.labels]
            axes.legend(handles=handles, loc="best", fontsize="x-small")
    if labels:
        handles = [_handle(shape, pens, label, label) for label, shape in labels.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=min(len(labels), n_keys))
    return figure


def _handle(shape: Shape, pens: Pens, label: str, text: str) -> Artist:
    """Return the sample of a label for a legend."""
    pen = pens[label]
    name = text.lstrip("_")  # matplotlib hides names that begin with an underscore
    if shape == "patch":
        return Patch(color=pen.color, linewidth=0, label=name)
    if shape == "frame":
        return Patch(edgecolor=pen.color, fill=False, linewidth=1.2, label=name)
    line = Line2D([], [], color=pen.color, linewidth=1.6, label=name)
    line.set(linestyle="none" if shape == "marker" else pen.dashes)
    line.set(marker=pen.marker, markersize=4)
    return line
