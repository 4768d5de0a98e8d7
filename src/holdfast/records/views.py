"""How a study shows its runs and measurements; each refers to them by the hash of their configuration."""

from dataclasses import dataclass
from typing import ClassVar, Literal, final

Metric = Literal["accuracy", "test_loss", "attack_success", "loss", "residual", "memory_norm", "bad_weight"]
"""What a run's summary has over time."""

Scale = Literal["linear", "log"]


@dataclass(frozen=True, kw_only=True)
class View:
    """Something to look at: a table, or a figure.

    Args:
        title: what it shows.
        note: what one must know to read it; may be empty.
    """

    kind: ClassVar[str]

    title: str
    note: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class PaperCell:
    """What the paper's table says: a percentage and the half-width of its interval, or that nothing is there."""

    mean: float | None
    interval: float | None = None


@final
@dataclass(frozen=True, kw_only=True)
class TableRow:
    """One line of a table.

    Args:
        group: the heading it stands under; may be empty.
        label: its name.
        runs: for each column the runs, one per seed.
        paper: for each column what the paper has, None where it has no such column.
    """

    group: str
    label: str
    runs: tuple[tuple[str, ...], ...]
    paper: tuple[PaperCell | None, ...]


@final
@dataclass(frozen=True, kw_only=True)
class AccuracyTable(View):
    """Final test accuracies: a line per threat, a column per method, beside the paper's."""

    kind = "accuracy-table"

    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]


@final
@dataclass(frozen=True, kw_only=True)
class Line:
    """The runs of one method over their seeds."""

    label: str
    runs: tuple[str, ...]


@final
@dataclass(frozen=True, kw_only=True)
class CurvePanel:
    """One pair of axes."""

    title: str
    lines: tuple[Line, ...]


@final
@dataclass(frozen=True, kw_only=True)
class Curves(View):
    """What happened over time, one line per method."""

    kind = "curves"

    x: Literal["step", "seconds"]
    y: Metric
    panels: tuple[CurvePanel, ...]


@final
@dataclass(frozen=True, kw_only=True)
class Point:
    """The runs at one place on the horizontal axis."""

    x: float
    runs: tuple[str, ...]


@final
@dataclass(frozen=True, kw_only=True)
class PointLine:
    """One method at several places."""

    label: str
    points: tuple[Point, ...]


@final
@dataclass(frozen=True, kw_only=True)
class PointPanel:
    """One pair of axes."""

    title: str
    lines: tuple[PointLine, ...]


@final
@dataclass(frozen=True, kw_only=True)
class Points(View):
    """What came out at the end, over something that the runs differ in: the share of bad rows, the size of the block."""

    kind = "points"

    x_label: str
    x_scale: Scale = "linear"
    y: Metric
    panels: tuple[PointPanel, ...]


@final
@dataclass(frozen=True, kw_only=True)
class MeasuredPoint:
    """A value of a measurement's result."""

    x: float
    measurement: str
    value: str


@final
@dataclass(frozen=True, kw_only=True)
class MeasuredLine:
    """Values of several measurements."""

    label: str
    points: tuple[MeasuredPoint, ...]


@final
@dataclass(frozen=True, kw_only=True)
class MeasuredPanel:
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"
    lines: tuple[MeasuredLine, ...]


@final
@dataclass(frozen=True, kw_only=True)
class Measured(View):
    """Measured values over something that was varied; on two logarithmic axes each line's exponent is fitted."""

    kind = "measured"

    panels: tuple[MeasuredPanel, ...]


@final
@dataclass(frozen=True, kw_only=True)
class MeasuredValue:
    """A cell: a value of a measurement's result (`errors.mean` is `mean` in the mapping `errors`), or a text."""

    measurement: str = ""
    value: str = ""
    text: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class ValueRow:
    """One line of a table of measured values."""

    label: str
    cells: tuple[MeasuredValue, ...]


@final
@dataclass(frozen=True, kw_only=True)
class ValueTable(View):
    """Measured values, and what one may hold against them."""

    kind = "value-table"

    columns: tuple[str, ...]
    rows: tuple[ValueRow, ...]


@final
@dataclass(frozen=True, kw_only=True)
class ScatterPanel:
    """One cloud of points, from a measurement with `good`, `bad` (lists of points) and `estimates` (label to point)."""

    title: str
    measurement: str


@final
@dataclass(frozen=True, kw_only=True)
class Scatter(View):
    """Points of the plane, and where rules put their centre."""

    kind = "scatter"

    panels: tuple[ScatterPanel, ...]


@final
@dataclass(frozen=True, kw_only=True)
class Pictures(View):
    """Images, from a measurement with `columns` (names) and `rows` (each a `label` and `pictures`, PNG in base64)."""

    kind = "pictures"

    measurement: str


@final
@dataclass(frozen=True, kw_only=True)
class RowPanel:
    """One run."""

    title: str
    run: str


@final
@dataclass(frozen=True, kw_only=True)
class RowWeights(View):
    """Who was bad, and what weight each row had, over time."""

    kind = "row-weights"

    panels: tuple[RowPanel, ...]


@final
@dataclass(frozen=True, kw_only=True)
class TimeSplit(View):
    """What a step spends its time on, one bar per method."""

    kind = "time-split"

    lines: tuple[Line, ...]
