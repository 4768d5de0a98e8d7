"""Points of the plane, and where rules put their centre."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from matplotlib.axes import Axes

from holdfast.lab.report._collection import Collection
from holdfast.lab.report._words import counted, listed, number
from holdfast.lab.report.figures._chart import Chart
from holdfast.lab.report.figures._panel import DataTable, Mark, Panel, Pens, Shape, pixels
from holdfast.lab.report.figures._ticks import set_scale
from holdfast.lab.report.figures._views import Scatter

Place = tuple[float, float]

MARGIN = 2.5
"""How much more than the good cloud is seen on each side, in halves of its width."""


@final
@dataclass(frozen=True, kw_only=True)
class CloudPanel(Panel):
    """One cloud; the axes show the good points and what lies near them."""

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
        """A square around the good cloud."""
        lows, highs = [
            [pick(place[i] for place in self.good) for i in (0, 1)] for pick in (min, max)
        ]
        half = (
            max(*(high - low for low, high in zip(lows, highs, strict=True)), 1e-12)
            / 2
            * (1 + MARGIN)
        )
        middle = [(low + high) / 2 for low, high in zip(lows, highs, strict=True)]
        return (middle[0] - half, middle[0] + half), (middle[1] - half, middle[1] + half)

    @property
    def outside(self) -> str:
        """A sentence about what is not seen; empty if all is."""
        hidden = sum(not self._is_seen(place) for place in self.bad)
        far = [label for label, place in self.estimates.items() if not self._is_seen(place)]
        words = ([counted(hidden, "bad point")] if hidden else []) + [
            f"the estimate of {label}" for label in far
        ]
        if not words:
            return ""
        verb = "lies" if len(words) == 1 and (far or hidden == 1) else "lie"
        place = f"{self.title}: " if self.title else ""
        return f"{place}{listed(words)} {verb} outside of what is shown."

    def _is_seen(self, place: Place) -> bool:
        return all(
            low <= value <= high for value, (low, high) in zip(place, self.limits, strict=True)
        )

    def draw(self, axes: Axes, pens: Pens) -> None:
        for label, places in (("good", self.good), ("bad", self.bad)):
            pen = pens[label]
            if places:
                x, y = zip(*places, strict=True)
                axes.scatter(
                    x, y, s=14, c=pen.color, marker=pen.marker, alpha=0.6, linewidths=0, gid=pen.gid
                )
        for label, place in self.estimates.items():
            pen = pens[label]
            axes.plot(
                *([value] for value in place),
                marker=pen.marker,
                markersize=8,
                color=pen.color,
                markeredgecolor=pens.ink["paper"],
                linestyle="none",
                zorder=4,
                gid=pen.gid,
            )
        axes.set_xlim(self.limits[0])
        axes.set_ylim(self.limits[1])
        axes.set_aspect("equal", adjustable="box")
        for axis in (axes.xaxis, axes.yaxis):
            set_scale(axis, "linear")

    def marks(self, axes: Axes) -> list[Mark]:
        named = (
            [("good", place) for place in self.good]
            + [("bad", place) for place in self.bad]
            + list(self.estimates.items())
        )
        found = []
        for label, place in named:
            if self._is_seen(place):
                x, y = pixels(axes, *place)
                error = f"error {number(self.errors[label])}" if label in self.errors else ""
                found.append(
                    Mark(
                        label=label,
                        x=x,
                        y=y,
                        at=f"({number(place[0])}, {number(place[1])})",
                        says=error,
                    )
                )
        return found

    def table(self) -> DataTable:
        rows = [
            (
                label,
                f"{number(x)}, {number(y)}",
                number(self.errors[label]) if label in self.errors else "",
            )
            for label, (x, y) in self.estimates.items()
        ]
        head = f"{counted(len(self.good), 'good point')}, {len(self.bad):,} bad"
        caption = f"{self.title}: {head}" if self.title else head
        return DataTable(caption=caption, columns=("estimate", "place", "error"), rows=tuple(rows))


def scatter(view: Scatter, found: Collection) -> Chart:
    """Good and bad points and the estimates."""
    panels, remarks = [], []
    for title, measurement in view.panels.items():
        record = found.measurements.get(measurement)
        if record is None:
            remarks.append(
                f"Nothing to show yet: the measurement of {title or view.title} is not there."
            )
            continue
        try:
            cloud = _cloud(title, record.result)
        except (KeyError, TypeError, ValueError, AttributeError):
            remarks.append(f"The measurement {record.hash[:8]} does not hold points of the plane.")
            continue
        panels.append(cloud)
        remarks += [cloud.outside] if cloud.outside else []
    return Chart(
        kind=view.kind,
        title=view.title,
        note=view.note,
        panels=tuple(panels),
        remarks=tuple(remarks),
        keys="Points",
    )


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
