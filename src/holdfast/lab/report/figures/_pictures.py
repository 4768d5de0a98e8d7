"""Small images, drawn large."""

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from matplotlib.axes import Axes
from matplotlib.image import imread
from matplotlib.ticker import FixedLocator

from holdfast.lab.report._collection import Collection
from holdfast.lab.report.figures._chart import Chart, Picture, PictureGrid
from holdfast.lab.report.figures._panel import DataTable, Mark, Panel, Pens, Shape
from holdfast.lab.report.figures._views import Pictures

GAP = 0.06
"""Between images, in shares of one."""


@final
@dataclass(frozen=True, kw_only=True)
class PicturePanel(Panel):
    """All images on one pair of axes, a unit apart."""

    grid: PictureGrid

    @property
    def height(self) -> float:
        return (len(self.grid.rows) + 0.5) / max(len(self.grid.columns) + 1, 2)

    @property
    def labels(self) -> Mapping[str, Shape]:
        return {}

    def draw(self, axes: Axes, pens: Pens) -> None:
        for i, (_, pictures) in enumerate(self.grid.rows):
            for j, picture in enumerate(pictures):
                pixels = imread(io.BytesIO(base64.b64decode(picture.data)), format="png")
                extent = (j + GAP, j + 1 - GAP, i + 1 - GAP, i + GAP)
                axes.imshow(
                    pixels, extent=extent, interpolation="none", cmap="gray", vmin=0, vmax=1
                )
        axes.set_xlim(0, len(self.grid.columns))
        axes.set_ylim(len(self.grid.rows), 0)
        axes.xaxis.set_major_locator(FixedLocator([j + 0.5 for j in range(len(self.grid.columns))]))
        axes.yaxis.set_major_locator(FixedLocator([i + 0.5 for i in range(len(self.grid.rows))]))
        axes.set_xticklabels(self.grid.columns)
        axes.set_yticklabels([label for label, _ in self.grid.rows])
        axes.tick_params(length=0, labeltop=True, labelbottom=False)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)

    def marks(self, axes: Axes) -> list[Mark]:
        return []

    def table(self) -> DataTable:
        rows = tuple(
            (label, *(picture.alt for picture in pictures)) for label, pictures in self.grid.rows
        )
        return DataTable(caption=self.title, columns=("", *self.grid.columns), rows=rows)


def pictures(view: Pictures, found: Collection) -> Chart:
    """The images of a measurement."""
    record = found.measurements.get(view.measurement)
    if record is None:
        remark = "Nothing to show yet: its measurement is not there."
        return Chart(kind=view.kind, title=view.title, note=view.note, remarks=(remark,))
    try:
        grid = _grid(record.result)
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        OSError,
        SyntaxError,
    ):  # the last is what a damaged PNG raises
        remark = f"The measurement {record.hash[:8]} does not hold images that can be read."
        return Chart(kind=view.kind, title=view.title, note=view.note, remarks=(remark,))
    return Chart(
        kind=view.kind,
        title=view.title,
        note=view.note,
        panels=(PicturePanel(title="", grid=grid),),
        pictures=grid,
    )


def _grid(result: dict[str, Any]) -> PictureGrid:
    columns = tuple(str(name) for name in result["columns"])
    rows = []
    for row in result["rows"]:
        label = str(row["label"])
        shown = tuple(
            _picture(data, f"{label}, {column}")
            for data, column in zip(row["pictures"], columns, strict=True)
        )
        rows.append((label, shown))
    if not rows or not columns:
        raise ValueError("no image")
    return PictureGrid(columns=columns, rows=tuple(rows))


def _picture(data: str, alt: str) -> Picture:
    imread(io.BytesIO(base64.b64decode(data, validate=True)), format="png")
    return Picture(data=data, alt=alt)
