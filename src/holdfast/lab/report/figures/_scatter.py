"""Points in the plane and estimates of their center."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from matplotlib.axes import Axes

from holdfast.lab.report._collection import Collection
from holdfast.lab.report._formatting import counted, listed, number
from holdfast.lab.report.figures._chart import Chart, DataTable, Mark, Panel, Pens, Shape, chart_of
from holdfast.lab.report.figures._line_panel import set_scale
from holdfast.lab.report.figures._views import Scatter

Place = tuple[float, float]

MARGIN = 2.5
"""Margin around the good points, in halves of their extent."""


@final
@dataclass(frozen=True, kw_only=True)
class CloudPanel(Panel):
    """One cloud; the axes show the good points and their surroundings."""

    good: tuple[Place, ...]
    bad: tuple[Place, ...]
    estimates: Mapping[str, Place]
    errors: Mapping[str, float]

    @property
    def height(self) -> float:
        return 0.92

    @property
    def labels(self) -> Mapping[str, Shape]:
        return dict.fromkeys(("good", *(["bad"] if self.bad else []), *self.estimates), "marker")

    @property
    def limits(self) -> tuple[Place, Place]:
        """Limits of both axes: a square around the good points."""
        ends = [(min(values), max(values)) for values in zip(*self.good, strict=True)]
        half = max(*(high - low for low, high in ends), 1e-12) / 2 * (1 + MARGIN)
        x, y = ((low + high) / 2 for low, high in ends)
        return (x - half, x + half), (y - half, y + half)

    @property
    def outside(self) -> str:
        """A sentence about points outside of the axes; empty if there are none."""
        hidden = sum(not self._is_seen(place) for place in self.bad)
        far = [label for label, place in self.estimates.items() if not self._is_seen(place)]
        words = [counted(hidden, "bad point")] if hidden else []
        words += [f"the estimate of {label}" for label in far]
        if not words:
            return ""
        verb = "lies" if len(words) == 1 and (far or hidden == 1) else "lie"
        place = f"{self.title}: " if self.title else ""
        return f"{place}{listed(words)} {verb} outside of the axes."

    def _is_seen(self, place: Place) -> bool:
        limits = zip(place, self.limits, strict=True)
        return all(low <= value <= high for value, (low, high) in limits)

    def draw(self, axes: Axes, pens: Pens) -> None:
        for label, places in (("good", self.good), ("bad", self.bad)):
            pen = pens[label]
            if places:
                x, y = zip(*places, strict=True)
                dots = axes.scatter(x, y, s=14, c=pen.color, marker=pen.marker, linewidths=0)
                dots.set(alpha=0.6, gid=pen.gid)
        for label, place in self.estimates.items():
            pen = pens[label]
            (mark,) = axes.plot(*([value] for value in place), linestyle="none", zorder=4)
            mark.set(color=pen.color, marker=pen.marker, markersize=8, gid=pen.gid)
            mark.set(markeredgecolor=pens.ink["paper"])
        axes.set_xlim(self.limits[0])
        axes.set_ylim(self.limits[1])
        axes.set_aspect("equal", adjustable="box")
        set_scale(axes.xaxis, "linear")
        set_scale(axes.yaxis, "linear")

    def marks(self, axes: Axes) -> list[Mark]:
        named = [*(("good", place) for place in self.good), *(("bad", place) for place in self.bad)]
        found = []
        for label, place in [*named, *self.estimates.items()]:
            if self._is_seen(place):
                says = f"error {number(self.errors[label])}" if label in self.errors else ""
                at = f"({number(place[0])}, {number(place[1])})"
                found.append(Mark.of(axes, label, place, at, says))
        return found

    def table(self) -> DataTable:
        errors = {label: number(error) for label, error in self.errors.items()}
        rows = [
            (label, f"{number(x)}, {number(y)}", errors.get(label, ""))
            for label, (x, y) in self.estimates.items()
        ]
        head = f"{counted(len(self.good), 'good point')}, {len(self.bad):,} bad"
        caption = f"{self.title}: {head}" if self.title else head
        return DataTable(caption=caption, columns=("estimate", "place", "error"), rows=tuple(rows))


def scatter(view: Scatter, collection: Collection) -> Chart:
    """Draw good and bad points and the estimates."""
    panels, remarks = [], []
    for title, measurement in view.panels.items():
        record = collection.measurements.get(measurement)
        if record is None:
            name = title or view.title
            remarks.append(f"Nothing to show yet: the measurement of {name} is missing.")
            continue
        try:
            cloud = _cloud(title, record.result)
        except (KeyError, TypeError, ValueError, AttributeError):
            remarks.append(f"The measurement {record.hash[:8]} has no points in the plane.")
            continue
        panels.append(cloud)
        remarks += [cloud.outside] if cloud.outside else []
    return chart_of(view, panels, remarks, keys="Points")


def _cloud(title: str, result: Mapping[str, Any]) -> CloudPanel:
    good = tuple(_place(point) for point in result["good"])
    if not good:
        raise ValueError("no good point")
    return CloudPanel(
        title=title,
        good=good,
        bad=tuple(_place(point) for point in result["bad"]),
        estimates={str(label): _place(point) for label, point in result["estimates"].items()},
        errors={str(label): float(error) for label, error in result.get("errors", {}).items()},
    )


def _place(point: Any) -> Place:
    x, y = (float(value) for value in point)
    if not (math.isfinite(x) and math.isfinite(y)):
        raise ValueError("not finite")
    return x, y
