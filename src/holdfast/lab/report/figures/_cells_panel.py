"""Panels made of cells with names of their columns and rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator

from holdfast.lab.report.figures._chart import DataTable, Mark, Panel, Shape


@dataclass(frozen=True, kw_only=True)
class CellsPanel(Panel):
    """Cells in rows and columns for a file; the page shows the same as a table."""

    @property
    def labels(self) -> Mapping[str, Shape]:
        return {}

    def marks(self, axes: Axes) -> list[Mark]:
        return []

    def table(self) -> DataTable:
        return DataTable(caption=self.title, columns=(), rows=())


def name_cells(axes: Axes, columns: Sequence[str], rows: Sequence[str]) -> None:
    """Name the columns above and the rows beside cells of size 1, from the upper left."""
    axes.set_xlim(0, len(columns))
    axes.set_ylim(len(rows), 0)
    axes.xaxis.set_major_locator(FixedLocator([j + 0.5 for j in range(len(columns))]))
    axes.yaxis.set_major_locator(FixedLocator([i + 0.5 for i in range(len(rows))]))
    axes.set_xticklabels(columns)
    axes.set_yticklabels(rows)
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
