"""Weight given to each row over time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import final

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.ticker import FixedLocator, FuncFormatter

from holdfast.lab.records import Summary
from holdfast.lab.report._collection import Collection
from holdfast.lab.report._formatting import number
from holdfast.lab.report.figures._chart import (
    Chart,
    DataTable,
    Mark,
    Panel,
    Pens,
    Shape,
    absent,
    chart_of,
)
from holdfast.lab.report.figures._views import RowWeights

FINE = 7
"""Pixels along a side of a marked cell."""

SHAPES: dict[str, Shape] = {"weight": "patch", "bad row": "marker", "rejected row": "frame"}

MIN_STEPS = 12
"""Steps that the horizontal axis has room for."""

Color = tuple[float, float, float]
Pixel = tuple[float, float, float, float]
"""Red, green, blue and opacity."""

CLEAR: Pixel = (1.0, 1.0, 1.0, 0.0)


@final
@dataclass(frozen=True, kw_only=True)
class HeatPanel(Panel):
    """Rows over steps: stronger color is more weight; dots are bad rows, frames rejected ones.

    The layers are images with transparency, which are small and work on light and dark background.
    A dot has a white edge whose opacity is the weight, so that a bad row with weight stands out.
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
        """Number of rows."""
        return len(self.weights[0])

    @property
    def labels(self) -> Mapping[str, Shape]:
        is_drawn = {"weight": True, "bad row": any(self.bad), "rejected row": any(self.rejected)}
        return {label: shape for label, shape in SHAPES.items() if is_drawn[label]}

    def draw(self, axes: Axes, pens: Pens) -> None:
        n, n_steps = self.n_rows, len(self.steps)
        top = max(max(step) for step in self.weights) or 1.0
        strengths = [[self.weights[j][i] / top for j in range(n_steps)] for i in range(n)]
        colors = {label: to_rgb(pens.image_color(label)) for label in SHAPES}
        layers = {"weight": [[(*colors["weight"], x) for x in line] for line in strengths]}
        for label, cells, pixel in (
            ("bad row", self.bad, _dot),
            ("rejected row", self.rejected, _frame),
        ):
            if any(cells):
                layers[label] = _marked(cells, strengths, pixel, colors[label])
        extent = (0.0, float(n_steps), float(n), 0.0)
        for label, image in layers.items():
            gid = pens[label].gid
            axes.imshow(image, extent=extent, interpolation="none", aspect="auto", gid=gid)
        self._draw_axes(axes)

    def _draw_axes(self, axes: Axes) -> None:
        n, n_steps = self.n_rows, len(self.steps)
        axes.set_xlim(0, max(n_steps, MIN_STEPS))
        axes.set_ylim(n, 0)
        axes.set_xlabel("step")
        axes.set_ylabel("row")
        axes.grid(visible=False)
        every = max(1, n_steps // 4)
        axes.xaxis.set_major_locator(
            FixedLocator([j + 0.5 for j in range(every - 1, n_steps, every)])
        )
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{self.steps[int(x)]:,}"))
        axes.yaxis.set_major_locator(
            FixedLocator([i + 0.5 for i in range(0, n, max(1, -(-n // 6)))])
        )
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: str(int(y))))

    def marks(self, axes: Axes) -> list[Mark]:
        found = []
        for i in range(self.n_rows):
            for j, step in enumerate(self.steps):
                says = number(self.weights[j][i]) + (", bad" if i in self.bad[j] else "")
                says += ", rejected" if i in self.rejected[j] else ""
                at = f"step {step:,}, weight"
                found.append(Mark.of(axes, f"row {i}", (j + 0.5, i + 0.5), at, says))
        return found

    def table(self) -> DataTable:
        rows = []
        for i in range(self.n_rows):
            cells = [(i in bad, step[i]) for step, bad in zip(self.weights, self.bad, strict=True)]
            good, bad = [[w for is_bad, w in cells if is_bad == want] for want in (False, True)]
            means = [number(fmean(some)) if some else "" for some in (good, bad)]
            rejected = sum(i in some for some in self.rejected)
            rows.append((str(i), *means, str(len(bad)), str(rejected)))
        means_of = ("mean weight when good", "mean weight when bad")
        return DataTable(
            caption=f"{self.title}, at {len(self.steps)} steps",
            columns=("row", *means_of, "times bad", "times rejected"),
            rows=tuple(rows),
        )


def _marked(
    cells: tuple[frozenset[int], ...],
    strengths: list[list[float]],
    pixel: Callable[[int, int, float, Color], Pixel],
    color: Color,
) -> list[list[Pixel]]:
    """Draw a mark in some of the cells, in fine pixels."""
    return [
        [
            pixel(u, v, line[j], color) if i in cells[j] else CLEAR
            for j in range(len(cells))
            for u in range(FINE)
        ]
        for i, line in enumerate(strengths)
        for v in range(FINE)
    ]


def _dot(u: int, v: int, strength: float, color: Color) -> Pixel:
    far = max(abs(u - FINE // 2), abs(v - FINE // 2))
    return (*color, 1.0) if far <= 1 else (1.0, 1.0, 1.0, strength) if far == 2 else CLEAR


def _frame(u: int, v: int, _strength: float, color: Color) -> Pixel:
    return (*color, 1.0) if {u, v} & {0, FINE - 1} else CLEAR


def row_weights(view: RowWeights, collection: Collection) -> Chart:
    """Draw one panel per run that has weights."""
    panels, remarks = [], list(absent(collection, list(view.panels.values())))
    for title, key in view.panels.items():
        run = collection.runs.get(key)
        if run is not None and run.rows.weights:
            panels.append(_heat(title, run))
        elif run is not None:
            remarks.append(f"{title}: this run has no weights of rows.")
    return chart_of(view, panels, remarks, keys="Layers")


def _heat(title: str, run: Summary) -> HeatPanel:
    return HeatPanel(
        title=title,
        steps=run.rows.step,
        weights=run.rows.weights or (),
        bad=tuple(frozenset(some) for some in run.rows.bad),
        rejected=tuple(frozenset(some) for some in run.rows.rejected),
    )
