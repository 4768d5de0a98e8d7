"""Lines over a horizontal axis: with a band or bars, and crosses where a run diverged."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

from matplotlib.axes import Axes
from matplotlib.axis import XAxis, YAxis
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from holdfast.lab.report.figures._chart import DataTable, Mark, Panel, Pens, Shape
from holdfast.lab.report.figures._views import Scale

BOTTOM, STEP, MOST = 0.04, 0.06, 0.5
"""Height of a cross without a value, distance to the next above it, and height of the highest, as
shares of the axes."""

NEAR = 0.04
"""Distance, as a share of the horizontal range, below which crosses are stacked."""

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


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
    """Diverged runs; without `y` they are drawn at the bottom of the axes."""

    label: str
    x: float
    y: float | None = None
    at: str
    says: str


@final
@dataclass(frozen=True, kw_only=True)
class Trace:
    """A line; `pieces` are drawn separately, and empty where all runs diverged."""

    label: str
    pieces: tuple[tuple[Spot, ...], ...]

    @property
    def spots(self) -> Iterator[Spot]:
        """The points of all pieces."""
        return (spot for piece in self.pieces for spot in piece)


@final
@dataclass(frozen=True, kw_only=True)
class LinePanel(Panel):
    """One line per method.

    Args:
        x_label, y_label, x_scale, y_scale: of the axes.
        ticks: ticks of the horizontal axis; empty for automatic ticks.
        traces: the lines.
        crosses: runs that diverged; each belongs to a line.
        spread: how the ends of a spot are drawn.
        bounds: limits of the vertical axis if no line is drawn.
    """

    x_label: str
    y_label: str
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"
    ticks: tuple[float, ...] = ()
    traces: tuple[Trace, ...]
    crosses: tuple[Cross, ...] = ()
    spread: Literal["bands", "bars"] = "bands"
    bounds: tuple[float, float] | None = None

    @property
    def labels(self) -> Mapping[str, Shape]:
        return {trace.label: "line" for trace in self.traces}

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences that explain the marks of the panel."""
        is_wide = any(spot.low is not None for trace in self.traces for spot in trace.spots)
        spread = f"{self.spread.capitalize()} show the ranges over the seeds."
        crosses = "A cross marks runs that diverged."
        return (*([spread] if is_wide else []), *([crosses] if self.crosses else []))

    def draw(self, axes: Axes, pens: Pens) -> None:
        for trace in self.traces:
            for piece in trace.pieces:
                self._draw_piece(axes, pens, trace.label, piece)
        for cross, y in self._placed_crosses():
            pen = pens[cross.label]
            (mark,) = axes.plot([cross.x], [y], "x", transform=_transform(axes, cross), zorder=4)
            mark.set(color=pen.color, gid=pen.gid, clip_on=False)
            mark.set(markersize=6, markeredgewidth=1.8)
        axes.set_xlabel(self.x_label)
        axes.set_ylabel(self.y_label)
        set_scale(axes.xaxis, self.x_scale, self.ticks)
        set_scale(axes.yaxis, self.y_scale)
        has_heights = any(trace.pieces for trace in self.traces) or any(
            cross.y is not None for cross in self.crosses
        )
        if self.bounds and not has_heights:
            axes.set_ylim(self.bounds)
        elif self.y_scale == "linear":
            self._make_room(axes)

    def _draw_piece(self, axes: Axes, pens: Pens, label: str, piece: tuple[Spot, ...]) -> None:
        pen = pens[label]
        axes.plot(
            [spot.x for spot in piece],
            [spot.y for spot in piece],
            color=pen.color,
            linestyle=pen.dashes,
            marker=pen.marker,
            markersize=4.0 if len(piece) <= 15 else 0.0,
            linewidth=1.6,
            gid=pen.gid,
        )
        ends = [(spot.x, spot.low, spot.high) for spot in piece if spot.low is not None]
        if ends:
            x, low, high = map(list, zip(*ends, strict=True))
            if self.spread == "bands":
                band = axes.fill_between(x, low, high, color=pen.color, alpha=0.16, linewidth=0)
                band.set_gid(pen.gid)
            else:
                axes.vlines(x, low, high, colors=pen.color, linewidth=1.2, gid=pen.gid)

    def _make_room(self, axes: Axes) -> None:
        """Extend the vertical axis so that lines are above the crosses at the bottom."""
        heights = [height for cross, height in self._placed_crosses() if cross.y is None]
        if heights:
            low, high = axes.get_ylim()
            room = max(heights) + self._cross_step
            axes.set_ylim(low - (high - low) * room / (1 - room), high)

    def _placed_crosses(self) -> list[tuple[Cross, float]]:
        """Return crosses with their heights: in data units, or in shares of the axes, stacked."""
        places = [spot.x for trace in self.traces for spot in trace.spots]
        places += [cross.x for cross in self.crosses]
        near = NEAR * (max(places) - min(places)) if places else 0.0
        placed: list[tuple[Cross, float]] = []
        for cross in self.crosses:
            below = sum(other.y is None and abs(other.x - cross.x) <= near for other, _ in placed)
            height = BOTTOM + self._cross_step * below if cross.y is None else cross.y
            placed.append((cross, height))
        return placed

    @property
    def _cross_step(self) -> float:
        """Distance of stacked crosses; less where they are many, to leave room for lines."""
        return min(STEP, MOST / max(1, sum(cross.y is None for cross in self.crosses)))

    def marks(self, axes: Axes) -> list[Mark]:
        found = []
        for trace in self.traces:
            for spot in trace.spots:
                found.append(Mark.of(axes, trace.label, (spot.x, spot.y), spot.at, spot.says))
        for cross, height in self._placed_crosses():
            x, y = map(float, _transform(axes, cross).transform((cross.x, height)))
            found.append(Mark(label=cross.label, x=x, y=y, at=cross.at, says=cross.says))
        return found

    def table(self) -> DataTable:
        cells: dict[tuple[float, str], dict[str, list[str]]] = {}
        shown: list[tuple[str, Spot | Cross]] = []
        shown += [(trace.label, spot) for trace in self.traces for spot in trace.spots]
        shown += [(cross.label, cross) for cross in self.crosses]
        for label, one in shown:
            cells.setdefault((one.x, one.at), {}).setdefault(label, []).append(one.says)
        rows = [
            (at, *("; ".join(by_label.get(label, [])) for label in self.labels))
            for (_, at), by_label in sorted(cells.items())
        ]
        columns = (self.x_label, *self.labels)
        return DataTable(caption=self.title or self.y_label, columns=columns, rows=tuple(rows))


def _transform(axes: Axes, cross: Cross) -> Any:
    return axes.get_xaxis_transform() if cross.y is None else axes.transData


def remarks_of(panels: Sequence[LinePanel]) -> tuple[str, ...]:
    """Return the remarks of all panels, each once, as one paragraph."""
    said = dict.fromkeys(remark for panel in panels for remark in panel.remarks)
    return (" ".join(said),) if said else ()


def set_scale(axis: XAxis | YAxis, scale: Scale, ticks: Sequence[float] = ()) -> None:
    """Set the scale of an axis and about five ticks, or those given."""
    if scale == "log":
        getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
        axis.set_major_locator(LogLocator(base=10, numticks=6))
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    if ticks:
        axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: tick_label(value)))


def tick_label(value: float) -> str:
    """Format a number on an axis without markup.

    Example:
        >>> tick_label(0.05), tick_label(2500.0), tick_label(1e6), tick_label(2e-7)
        ('0.05', '2,500', '10⁶', '2·10⁻⁷')
    """
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:,.10g}"
    digits, exponent = f"{value:.2e}".split("e")
    digits = digits.rstrip("0").rstrip(".")
    power = "10" + str(int(exponent)).translate(SUPERSCRIPTS)
    return power if digits == "1" else f"{digits}·{power}"
