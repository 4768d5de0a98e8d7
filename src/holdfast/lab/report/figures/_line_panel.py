"""Lines over a horizontal axis: with a band or with bars, with crosses where a run diverged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, final

from matplotlib.axes import Axes

from holdfast.lab.report.figures._panel import DataTable, Mark, Panel, Pens, Shape, pixels
from holdfast.lab.report.figures._ticks import set_scale
from holdfast.lab.report.figures._views import Scale

BOTTOM, STEP, MOST = 0.04, 0.06, 0.5
"""Where a cross lies that has no height of its own, how much higher the next one, and how much higher the last may be, in shares of the axes."""

NEAR = 0.04
"""How far crosses must be from each other to lie at one height, in shares of what is shown."""


@final
@dataclass(frozen=True, kw_only=True)
class Spot:
    """A point of a line; `low` and `high` are the ends of its bar or of the band."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    at: str
    says: str


@final
@dataclass(frozen=True, kw_only=True)
class Cross:
    """Where a run diverged; at the bottom of the axes if it has no `y`."""

    label: str
    x: float
    y: float | None = None
    at: str
    says: str


@final
@dataclass(frozen=True, kw_only=True)
class Trace:
    """A line; `pieces`, of which there may be none where all runs diverged, are drawn each for itself."""

    label: str
    pieces: tuple[tuple[Spot, ...], ...]


@final
@dataclass(frozen=True, kw_only=True)
class LinePanel(Panel):
    """One line per method.

    Args:
        x_label: of the horizontal axis.
        y_label: of the vertical axis.
        x_scale: of the horizontal axis.
        y_scale: of the vertical axis.
        ticks: places of the horizontal axis that are named; none to let them be chosen.
        traces: the lines.
        crosses: where runs diverged; each belongs to a line.
        spread: how the ends of a spot are shown.
        bounds: of the vertical axis if there is no line.
    """

    x_label: str
    y_label: str
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"
    ticks: tuple[float, ...] = ()
    traces: tuple[Trace, ...]
    crosses: tuple[Cross, ...] = ()
    spread: Literal["band", "bars"] = "band"
    bounds: tuple[float, float] | None = None

    @property
    def height(self) -> float:
        return 0.7

    @property
    def labels(self) -> Mapping[str, Shape]:
        return {trace.label: "line" for trace in self.traces}

    def draw(self, axes: Axes, pens: Pens) -> None:
        for trace in self.traces:
            for piece in trace.pieces:
                self._draw_piece(axes, pens, trace.label, piece)
        for cross, y in self._placed_crosses():
            pen = pens[cross.label]
            transform = axes.transData if cross.y is not None else axes.get_xaxis_transform()
            axes.plot(
                [cross.x],
                [y],
                transform=transform,
                marker="x",
                markersize=6,
                markeredgewidth=1.8,
                color=pen.color,
                linestyle="none",
                clip_on=False,
                zorder=4,
                gid=pen.gid,
            )
        axes.set_xlabel(self.x_label)
        axes.set_ylabel(self.y_label)
        set_scale(axes.xaxis, self.x_scale, self.ticks)
        set_scale(axes.yaxis, self.y_scale)
        if (
            self.bounds
            and not any(trace.pieces for trace in self.traces)
            and all(cross.y is None for cross in self.crosses)
        ):
            axes.set_ylim(self.bounds)
        elif self.y_scale == "linear":
            self._make_room(axes)

    def _make_room(self, axes: Axes) -> None:
        """Keep the lines above the crosses at the bottom."""
        heights = [height for cross, height in self._placed_crosses() if cross.y is None]
        if heights:
            low, high = axes.get_ylim()
            room = max(heights) + self._cross_step
            axes.set_ylim(low - (high - low) * room / (1 - room), high)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What one must know to read it, a sentence each."""
        spots = [spot for trace in self.traces for piece in trace.pieces for spot in piece]
        spread = {
            "band": "Bands reach from the least to the greatest of the seeds.",
            "bars": "Bars are 95 % confidence intervals, as far as values can lie there.",
        }[self.spread]
        wide = (spread,) if any(spot.low is not None for spot in spots) else ()
        return (*wide, *(["A cross marks runs that diverged."] if self.crosses else []))

    def _draw_piece(self, axes: Axes, pens: Pens, label: str, piece: tuple[Spot, ...]) -> None:
        pen = pens[label]
        size = 4.0 if len(piece) <= 15 else 0.0
        x, y = [spot.x for spot in piece], [spot.y for spot in piece]
        axes.plot(
            x,
            y,
            color=pen.color,
            linestyle=pen.dashes,
            marker=pen.marker,
            markersize=size,
            linewidth=1.6,
            gid=pen.gid,
        )
        wide = [
            (spot.x, spot.low, spot.high)
            for spot in piece
            if spot.low is not None and spot.high is not None
        ]
        if wide:
            places, low, high = zip(*wide, strict=True)
            if self.spread == "band":
                axes.fill_between(
                    places, low, high, color=pen.color, alpha=0.16, linewidth=0, gid=pen.gid
                )
            else:
                axes.vlines(places, low, high, colors=pen.color, linewidth=1.2, gid=pen.gid)

    def _placed_crosses(self) -> list[tuple[Cross, float]]:
        """Each with its height: in the data's units, or in shares of the axes, where those that are near each other are stacked."""
        places = [spot.x for trace in self.traces for piece in trace.pieces for spot in piece] + [
            cross.x for cross in self.crosses
        ]
        near = NEAR * (max(places) - min(places)) if places else 0.0
        placed: list[tuple[Cross, float]] = []
        for cross in self.crosses:
            below = [
                other for other, _ in placed if other.y is None and abs(other.x - cross.x) <= near
            ]
            placed.append(
                (cross, BOTTOM + self._cross_step * len(below) if cross.y is None else cross.y)
            )
        return placed

    @property
    def _cross_step(self) -> float:
        """Smaller where crosses are many, so that lines have room above them."""
        return min(STEP, MOST / max(1, sum(cross.y is None for cross in self.crosses)))

    def marks(self, axes: Axes) -> list[Mark]:
        found = []
        for trace in self.traces:
            for spot in (spot for piece in trace.pieces for spot in piece):
                x, y = pixels(axes, spot.x, spot.y)
                found.append(Mark(label=trace.label, x=x, y=y, at=spot.at, says=spot.says))
        for cross, height in self._placed_crosses():
            transform = axes.transData if cross.y is not None else axes.get_xaxis_transform()
            x, y = transform.transform((cross.x, height))
            found.append(
                Mark(label=cross.label, x=float(x), y=float(y), at=cross.at, says=cross.says)
            )
        return found

    def table(self) -> DataTable:
        cells: dict[tuple[float, str], dict[str, list[str]]] = {}
        for trace in self.traces:
            for spot in (spot for piece in trace.pieces for spot in piece):
                cells.setdefault((spot.x, spot.at), {}).setdefault(trace.label, []).append(
                    spot.says
                )
        for cross in self.crosses:
            cells.setdefault((cross.x, cross.at), {}).setdefault(cross.label, []).append(cross.says)
        rows = [
            (at, *("; ".join(by_label.get(label, [])) for label in self.labels))
            for (_, at), by_label in sorted(cells.items())
        ]
        return DataTable(
            caption=self.title or self.y_label,
            columns=(self.x_label, *self.labels),
            rows=tuple(rows),
        )


def remarks_of(panels: Sequence[LinePanel]) -> tuple[str, ...]:
    """Those of all panels, each once, as one paragraph."""
    said = dict.fromkeys(remark for panel in panels for remark in panel.remarks)
    return (" ".join(said),) if said else ()
