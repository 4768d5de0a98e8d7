"""Lines: over time, over what runs differ in, over what was varied."""

from dataclasses import dataclass
from typing import Literal, final

from holdfast.lab.records.views._view import View

Metric = Literal[
    "accuracy", "test_loss", "attack_success", "loss", "residual", "memory_norm", "bad_weight"
]
"""What a run's summary has over time."""

Scale = Literal["linear", "log"]


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
