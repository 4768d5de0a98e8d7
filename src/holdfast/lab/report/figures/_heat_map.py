"""A table of accuracies as a heat map."""

import textwrap
from dataclasses import dataclass
from typing import final

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from holdfast.lab.report.figures._cells_panel import CellsPanel, name_cells
from holdfast.lab.report.figures._chart import Chart, Pens
from holdfast.lab.report.figures._grid import Cell, Grid

GAP = 0.03
"""Distance between cells, as a share of their width."""


def heat_map(grid: Grid) -> Chart:
    """Return the figure of a grid: on the page the table in colors, in files a drawing."""
    panels = (HeatMapPanel(title="", grid=grid),)
    return Chart(kind="heat-map", title=grid.title, note=grid.note, panels=panels, grid=grid)


@final
@dataclass(frozen=True, kw_only=True)
class HeatMapPanel(CellsPanel):
    """A grid for a file: the page shows the table with the same colors."""

    grid: Grid

    @property
    def _lines(self) -> list[tuple[str, tuple[Cell, ...]]]:
        return [line for _, lines in self.grid.groups for line in lines]

    @property
    def height(self) -> float:
        return 0.16 + 0.085 * len(self._lines)

    def draw(self, axes: Axes, pens: Pens) -> None:
        for i, (_, cells) in enumerate(self._lines):
            for j, cell in enumerate(cells):
                place, size = (j + GAP, i + GAP), 1 - 2 * GAP
                color = pens.ink["raised"] if cell.depth is None else pens.ink["heat"]
                patch = Rectangle(place, size, size, color=color, linewidth=0)
                axes.add_patch(patch).set_alpha(cell.depth)
                text = textwrap.fill(cell.text, 12)
                weight = "bold" if cell.is_best else "normal"
                axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", weight=weight)
        names = [textwrap.fill(name, 14) for name, _ in self.grid.columns]
        name_cells(axes, names, [textwrap.fill(label, 28) for label, _ in self._lines])
