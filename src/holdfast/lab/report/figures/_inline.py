"""Figures for the page: each panel as an SVG in the colors of the page, with its values."""

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final
from xml.etree import ElementTree

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from holdfast.lab.report._series_style import PAGE, SeriesStyle, drawing_settings, with_variables
from holdfast.lab.report.figures._chart import Chart, Mark, Panel, Pens, Shape
from holdfast.lab.report.figures._export import FORMATS

WIDTH = 300
SINGLE_WIDTH = 400
DPI = 72
"""One unit of an SVG is one point."""

REFERENCE = re.compile(r"url\(#([^)]+)\)")


@final
@dataclass(frozen=True, kw_only=True)
class InlinePanel:
    """A panel on the page.

    Args:
        title: title of the panel.
        svg: the drawing; artists have `data-series` with the key of their label's style.
        places: values for the page's script. `columns`, each a horizontal coordinate and its text;
            `lines`, each with its label, the key of its style, and points: index of a column,
            vertical coordinate, text.
    """

    title: str
    svg: str
    places: dict[str, Any]


def inline(chart: Chart, styles: Mapping[str, SeriesStyle], prefix: str) -> tuple[InlinePanel, ...]:
    """Draw the panels of a figure; `prefix` makes ids unique on the page."""
    width = SINGLE_WIDTH if len(chart.panels) == 1 else WIDTH
    return tuple(
        _inline(panel, styles, width, f"{prefix}-{i}")
        for i, panel in enumerate(chart.panels, start=1)
    )


def _inline(
    panel: Panel, styles: Mapping[str, SeriesStyle], width: int, prefix: str
) -> InlinePanel:
    height = round(width * panel.height)
    with drawing_settings(PAGE, size=11):
        figure = Figure((width / DPI, height / DPI), dpi=DPI, layout="constrained")
        axes = figure.add_subplot()
        panel.draw(axes, Pens(styles, PAGE))
        svg = _svg(figure, prefix)
        places = _places(panel.marks(axes), styles, height)
    return InlinePanel(title=panel.title, svg=svg, places=places)


def _places(marks: list[Mark], styles: Mapping[str, SeriesStyle], height: int) -> dict[str, Any]:
    columns: dict[tuple[float, str], int] = {}
    lines: dict[str, list[list[Any]]] = {}
    for mark in marks:
        column = columns.setdefault((round(mark.x, 1), mark.at), len(columns))
        lines.setdefault(mark.label, []).append([column, round(height - mark.y, 1), mark.says])
    return {
        "columns": [list(column) for column in columns],
        "lines": [
            {"label": label, "key": styles[label].key if label in styles else "", "points": points}
            for label, points in lines.items()
        ],
    }


def sample(shape: Shape, style: SeriesStyle, prefix: str) -> str:
    """Draw the sample beside a label; `prefix` makes ids unique on the page."""
    with drawing_settings(PAGE, size=8):
        figure = Figure((26 / DPI, 10 / DPI), dpi=DPI)
        pen = Pens({"": style}, PAGE)[""]
        artist: Rectangle | Line2D
        if shape == "patch":
            artist = Rectangle((0.2, 0.0), 0.6, 1.0, color=pen.color, linewidth=0)
        elif shape == "frame":
            artist = Rectangle((0.3, 0.12), 0.4, 0.76, fill=False, linewidth=1.6)
            artist.set_edgecolor(pen.color)
        else:
            artist = Line2D([0.04, 0.5, 0.96], [0.5] * 3, color=pen.color, linewidth=1.6)
            artist.set(linestyle="none" if shape == "marker" else pen.dashes)
            artist.set(marker=pen.marker, markersize=7 if shape == "marker" else 5)
            artist.set(markevery=[1], markeredgewidth=0)
        artist.set_transform(figure.transFigure)
        figure.add_artist(artist)
        return _svg(figure, prefix)


def _svg(figure: Figure, prefix: str) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata=dict(FORMATS["svg"]))
    return page_svg(out.getvalue(), prefix)


def page_svg(text: str, prefix: str) -> str:
    """Adapt an SVG of matplotlib to the page.

    Size, metadata and style sheet are removed, fonts and colors are those of the page, and ids
    begin with `prefix`. An id `series-x` becomes the attribute `data-series="x"`; ids without a
    reference are removed.
    """
    root = ElementTree.fromstring(text)
    for parent in list(root.iter()):
        for child in [child for child in parent if _name(child.tag) in ("metadata", "style")]:
            parent.remove(child)
    referred = {found for element in root.iter() for found in _references(element)}
    for element in root.iter():
        element.tag = _name(element.tag)
        element.attrib = dict(
            _attribute(_name(key), value, prefix, referred)
            for key, value in element.attrib.items()
            if _name(key) != "id" or value in referred or value.startswith("series-")
        )
        element.tail = None
        element.text = None if element.text is None or not element.text.strip() else element.text
    for element in root.iter():
        _share_style(element)
    root.attrib = {"viewBox": root.attrib["viewBox"], "aria-hidden": "true", "focusable": "false"}
    return ElementTree.tostring(root, encoding="unicode")


def _share_style(parent: ElementTree.Element) -> None:
    """Give the style of markers that have the same one to their parent, for a smaller page."""
    styles = {child.get("style") if _name(child.tag) == "use" else None for child in parent}
    if len(styles) == 1 and None not in styles and parent.get("style") is None:
        parent.set("style", str(styles.pop()))
        for child in parent:
            del child.attrib["style"]


def _name(tag: str) -> str:
    return tag.rpartition("}")[2]


def _references(element: ElementTree.Element) -> list[str]:
    found = [match for value in element.attrib.values() for match in REFERENCE.findall(value)]
    links = [value for key, value in element.attrib.items() if _name(key) == "href"]
    return found + [value[1:] for value in links if value.startswith("#")]


def _attribute(key: str, value: str, prefix: str, referred: set[str]) -> tuple[str, str]:
    if key == "id":
        is_series = value not in referred
        return ("data-series", value[len("series-") :]) if is_series else (key, f"{prefix}-{value}")
    if key == "href" and value.startswith("#"):
        return key, f"#{prefix}-{value[1:]}"
    if key == "style":
        value = with_variables(re.sub(r"font-family: [^;]+; ?", "", value))
    if key in ("x", "y"):
        value = re.sub(r"(\.\d\d)\d+", r"\1", value)
    if key == "d":
        value = re.sub(r"(\.\d\d)\d+", r"\1", " ".join(value.split()))
    return key, REFERENCE.sub(rf"url(#{prefix}-\1)", value)
