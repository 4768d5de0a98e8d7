"""Weight given to each row."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import final

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.ticker import FixedLocator, FuncFormatter

from holdfast.lab.records import Summary
from holdfast.lab.report._collection import Collection
from holdfast.lab.report._words import number
from holdfast.lab.report.figures._chart import Chart, absent
from holdfast.lab.report.figures._panel import DataTable, Mark, Panel, Pens, Shape, pixels
from holdfast.lab.report.figures._views import RowWeights

FINE = 7
"""Pixels along a side of a cell that is marked."""

SHAPES: dict[str, Shape] = {"weight": "patch", "bad row": "marker", "rejected row": "frame"}

FEWEST = 12
"""Steps that there is room for, however few there are."""

Pixel = tuple[float, float, float, float]
"""Red, green, blue, and how much it covers."""

Cell = Callable[[int, int, float, tuple[float, float, float]], Pixel]
"""What a mark has at a pixel of a cell whose weight has some strength."""

CLEAR: Pixel = (1.0, 1.0, 1.0, 0.0)


@final
@dataclass(frozen=True, kw_only=True)
class HeatPanel(Panel):
    """Rows over steps: the stronger the colour, the greater the weight; a dot marks a bad row, a frame a rejected one.

    The layers are images with transparency rather than thousands of shapes: small, and right on light and dark ground. A dot has a white edge, the stronger the
    greater the weight is: a bad row that was believed must not be overlooked.
    """

    steps: tuple[int, ...]
    weights: tuple[tuple[float, ...], ...]
    bad: tuple[frozenset[int], ...]
    rejected: tuple[frozenset[int], ...]

    @property
    def height(self) -> float:
        return 0.85

    @property
    def n_rows(self) -> int:
        """How many rows a step has."""
        return len(self.weights[0])

    @property
    def labels(self) -> Mapping[str, Shape]:
        is_drawn = {"weight": True, "bad row": any(self.bad), "rejected row": any(self.rejected)}
        return {label: shape for label, shape in SHAPES.items() if is_drawn[label]}

    def draw(self, axes: Axes, pens: Pens) -> None:
        top = max(max(step) for step in self.weights) or 1.0
        strengths = [
            [self.weights[j][i] / top for j in range(len(self.steps))] for i in range(self.n_rows)
        ]
        color = to_rgb(pens.ink_in_images("weight"))
        self._draw_layer(
            axes, pens, "weight", [[(*color, strength) for strength in line] for line in strengths]
        )
        for label, cells, cell in (
            ("bad row", self.bad, _dot),
            ("rejected row", self.rejected, _frame),
        ):
            if any(cells):
                self._draw_layer(
                    axes,
                    pens,
                    label,
                    self._marked(cells, strengths, cell, to_rgb(pens.ink_in_images(label))),
                )
        axes.set_xlim(0, max(len(self.steps), FEWEST))
        axes.set_ylim(self.n_rows, 0)
        axes.set_xlabel("step")
        axes.set_ylabel("row")
        axes.grid(visible=False)
        every = max(1, len(self.steps) // 4)
        named = list(range(every - 1, len(self.steps), every))
        axes.xaxis.set_major_locator(FixedLocator([j + 0.5 for j in named]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{self.steps[int(x)]:,}"))
        axes.yaxis.set_major_locator(
            FixedLocator([i + 0.5 for i in range(0, self.n_rows, max(1, -(-self.n_rows // 6)))])
        )
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: str(int(y))))

    def _draw_layer(self, axes: Axes, pens: Pens, label: str, image: list[list[Pixel]]) -> None:
        extent = (0.0, float(len(self.steps)), float(self.n_rows), 0.0)
        axes.imshow(image, extent=extent, interpolation="none", aspect="auto", gid=pens[label].gid)

    def _marked(
        self,
        cells: tuple[frozenset[int], ...],
        strengths: list[list[float]],
        cell: Cell,
        color: tuple[float, float, float],
    ) -> list[list[Pixel]]:
        """The marks of some cells, in fine pixels."""
        return [
            [
                cell(u, v, strengths[i][j], color) if i in cells[j] else CLEAR
                for j in range(len(self.steps))
                for u in range(FINE)
            ]
            for i in range(self.n_rows)
            for v in range(FINE)
        ]

    def marks(self, axes: Axes) -> list[Mark]:
        found = []
        for i in range(self.n_rows):
            for j, step in enumerate(self.steps):
                x, y = pixels(axes, j + 0.5, i + 0.5)
                says = number(self.weights[j][i]) + (", bad" if i in self.bad[j] else "")
                says += ", rejected" if i in self.rejected[j] else ""
                found.append(
                    Mark(label=f"row {i}", x=x, y=y, at=f"step {step:,}, weight", says=says)
                )
        return found

    def table(self) -> DataTable:
        rows = []
        for i in range(self.n_rows):
            when_bad = [
                step[i] for step, bad in zip(self.weights, self.bad, strict=True) if i in bad
            ]
            when_good = [
                step[i] for step, bad in zip(self.weights, self.bad, strict=True) if i not in bad
            ]
            means = [number(fmean(some)) if some else "" for some in (when_good, when_bad)]
            rejected = sum(i in some for some in self.rejected)
            rows.append((str(i), *means, str(len(when_bad)), str(rejected)))
        columns = (
            "row",
            "mean weight when good",
            "mean weight when bad",
            "times bad",
            "times rejected",
        )
        return DataTable(
            caption=f"{self.title}, at {len(self.steps)} steps", columns=columns, rows=tuple(rows)
        )


def _dot(u: int, v: int, strength: float, color: tuple[float, float, float]) -> Pixel:
    far = max(abs(u - FINE // 2), abs(v - FINE // 2))
    return (*color, 1.0) if far <= 1 else (1.0, 1.0, 1.0, strength) if far == 2 else CLEAR


def _frame(u: int, v: int, _strength: float, color: tuple[float, float, float]) -> Pixel:
    return (*color, 1.0) if {u, v} & {0, FINE - 1} else CLEAR


def row_weights(view: RowWeights, found: Collection) -> Chart:
    """One panel per run that has weights."""
    panels, remarks = [], list(absent(found, list(view.panels.values())))
    for title, key in view.panels.items():
        run = found.runs.get(key)
        if run is None:
            continue
        heat = _heat(title, run)
        if heat is None:
            remarks.append(f"{title}: this run has no weights of rows.")
        else:
            panels.append(heat)
    return Chart(
        kind=view.kind,
        title=view.title,
        note=view.note,
        panels=tuple(panels),
        remarks=tuple(remarks),
        keys="Layers",
    )


def _heat(title: str, run: Summary) -> HeatPanel | None:
    rows = run.content["rows"]
    if not rows["weights"]:
        return None
    return HeatPanel(
        title=title,
        steps=tuple(rows["step"]),
        weights=tuple(map(tuple, rows["weights"])),
        bad=tuple(frozenset(some) for some in rows["bad"]),
        rejected=tuple(frozenset(some) for some in rows["rejected"]),
    )
