"""Points of the plane, images, weights of rows, times."""

from dataclasses import dataclass
from typing import final

from holdfast.lab.records.views._lines import Line
from holdfast.lab.records.views._view import View


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
