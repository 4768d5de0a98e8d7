"""A figure for the page: each panel as a drawing of its own, in the page's colours, with the places that one can point at."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from holdfast.lab.report._colors import PAGE
from holdfast.lab.report._looks import Look
from holdfast.lab.report.figures._chart import Chart
from holdfast.lab.report.figures._panel import Mark, Panel, Pens, Shape
from holdfast.lab.report.figures._style import style
from holdfast.lab.report.figures._svg import page_svg

WIDTH = 300
SINGLE_WIDTH = 400
DPI = 72
"""One unit of the drawing is one point, which is what an SVG's numbers are."""


@final
@dataclass(frozen=True, kw_only=True)
class InlinePanel:
    """A panel as the page has it.

    Args:
        title: what it shows.
        svg: the drawing, whose artists bear `data-series` with the key of their label's look.
        places: for the page's script. `columns`, each a horizontal place and its words; `lines`, each with its label, the key of its look, and
            points: the number of a column, the height, and what is there.
    """

    title: str
    svg: str
    places: dict[str, Any]


def inline(chart: Chart, looks: Mapping[str, Look], prefix: str) -> tuple[InlinePanel, ...]:
    """The panels of a figure; `prefix` makes their ids unlike those of other figures."""
    width = SINGLE_WIDTH if len(chart.panels) == 1 else WIDTH
    return tuple(
        _inline(panel, looks, width, f"{prefix}-{i}")
        for i, panel in enumerate(chart.panels, start=1)
    )


def _inline(panel: Panel, looks: Mapping[str, Look], width: int, prefix: str) -> InlinePanel:
    height = round(width * panel.height)
    with style(PAGE, size=11):
        figure = Figure((width / DPI, height / DPI), dpi=DPI, layout="constrained")
        axes = figure.add_subplot()
        panel.draw(axes, Pens(looks, PAGE))
        svg = _saved(figure)
        places = _places(panel.marks(axes), looks, height)
    return InlinePanel(title=panel.title, svg=page_svg(svg, prefix), places=places)


def _saved(figure: Figure) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()


def _places(marks: list[Mark], looks: Mapping[str, Look], height: int) -> dict[str, Any]:
    columns: dict[tuple[float, str], int] = {}
    lines: dict[str, list[list[Any]]] = {}
    for mark in marks:
        column = columns.setdefault((round(mark.x, 1), mark.at), len(columns))
        lines.setdefault(mark.label, []).append([column, round(height - mark.y, 1), mark.says])
    return {
        "columns": [list(column) for column in columns],
        "lines": [
            {"label": label, "key": looks[label].key if label in looks else "", "points": points}
            for label, points in lines.items()
        ],
    }


def sample(shape: Shape, look: Look, prefix: str) -> str:
    """The little drawing beside a label; `prefix` makes its ids unlike others."""
    with style(PAGE, size=8):
        figure = Figure((26 / DPI, 10 / DPI), dpi=DPI)
        pen = Pens({"": look}, PAGE)[""]
        place = figure.transFigure
        if shape == "patch":
            figure.add_artist(
                Rectangle((0.2, 0.0), 0.6, 1.0, color=pen.color, linewidth=0, transform=place)
            )
        elif shape == "frame":
            frame = Rectangle(
                (0.3, 0.12),
                0.4,
                0.76,
                edgecolor=pen.color,
                fill=False,
                linewidth=1.6,
                transform=place,
            )
            figure.add_artist(frame)
        else:
            dashes = "none" if shape == "marker" else pen.dashes
            line = Line2D(
                [0.04, 0.5, 0.96],
                [0.5] * 3,
                color=pen.color,
                linestyle=dashes,
                linewidth=1.6,
                transform=place,
            )
            line.set(
                marker=pen.marker,
                markersize=7 if shape == "marker" else 5,
                markevery=[1],
                markeredgewidth=0,
            )
            figure.add_artist(line)
        return page_svg(_saved(figure), prefix)
