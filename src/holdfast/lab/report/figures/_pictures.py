"""Small images."""

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from matplotlib.axes import Axes
from matplotlib.image import imread

from holdfast.lab.report._collection import Collection
from holdfast.lab.report.figures._cells_panel import CellsPanel, name_cells
from holdfast.lab.report.figures._chart import Chart, Pens, PictureGrid, chart_of
from holdfast.lab.report.figures._views import Pictures

GAP = 0.06
"""Distance between images, as a share of their width."""


@final
@dataclass(frozen=True, kw_only=True)
class PicturePanel(CellsPanel):
    """All images on one pair of axes, one unit apart."""

    grid: PictureGrid

    @property
    def height(self) -> float:
        return (len(self.grid.rows) + 0.5) / max(len(self.grid.columns) + 1, 2)

    def draw(self, axes: Axes, pens: Pens) -> None:
        for i, (_, pictures) in enumerate(self.grid.rows):
            for j, picture in enumerate(pictures):
                image = _decode(picture)
                extent = (j + GAP, j + 1 - GAP, i + 1 - GAP, i + GAP)
                axes.imshow(image, extent=extent, interpolation="none", cmap="gray", vmin=0, vmax=1)
        name_cells(axes, self.grid.columns, [label for label, _ in self.grid.rows])


def pictures(view: Pictures, collection: Collection) -> Chart:
    """Draw the images of a measurement."""
    record = collection.measurements.get(view.measurement)
    if record is None:
        return chart_of(view, remarks=["Nothing to show yet: its measurement is missing."])
    try:
        grid = _grid(record.result)
    # A damaged PNG raises SyntaxError.
    except (KeyError, TypeError, ValueError, AttributeError, OSError, SyntaxError):
        remark = f"The images of measurement {record.hash[:8]} could not be read."
        return chart_of(view, remarks=[remark])
    return chart_of(view, [PicturePanel(title="", grid=grid)], pictures=grid)


def _grid(result: Mapping[str, Any]) -> PictureGrid:
    columns = tuple(str(name) for name in result["columns"])
    rows = tuple((str(row["label"]), tuple(row["pictures"])) for row in result["rows"])
    for _, shown in rows:
        for picture in shown:
            _decode(picture)
    if not rows or not columns or any(len(shown) != len(columns) for _, shown in rows):
        raise ValueError("not one image per column")
    return PictureGrid(columns=columns, rows=rows)


def _decode(data: str) -> Any:
    return imread(io.BytesIO(base64.b64decode(data, validate=True)), format="png")
