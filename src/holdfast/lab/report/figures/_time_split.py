"""What a step spends its time on."""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import final

from matplotlib.axes import Axes

from holdfast.lab.report._collection import Collection
from holdfast.lab.report.figures._chart import Chart, absent
from holdfast.lab.report.figures._panel import DataTable, Mark, Panel, Pens, Shape, pixels
from holdfast.lab.report.figures._step_times import REMARK, step_times
from holdfast.lab.report.figures._ticks import set_scale
from holdfast.lab.report.figures._views import Runs, TimeSplit

PARTS = ("data", "attack", "gradient", "aggregation", "optimizer")
"""In the order of a step; others come after them."""


@final
@dataclass(frozen=True, kw_only=True)
class BarPanel(Panel):
    """One bar per method, in milliseconds, made of the parts of a step."""

    bars: tuple[tuple[str, dict[str, float]], ...]

    @property
    def height(self) -> float:
        n_lines = max(len(_wrapped(label).splitlines()) for label, _ in self.bars)
        return 0.16 + (0.045 + 0.04 * n_lines) * len(self.bars)

    @property
    def labels(self) -> Mapping[str, Shape]:
        there = {part for _, parts in self.bars for part in parts}
        return dict.fromkeys(
            sorted(
                there, key=lambda part: (PARTS.index(part) if part in PARTS else len(PARTS), part)
            ),
            "patch",
        )

    def _pieces(self) -> list[tuple[int, str, float, float]]:
        """Line, part, start and length."""
        pieces = []
        for i, (_, parts) in enumerate(self.bars):
            start = 0.0
            for part in self.labels:
                pieces.append((i, part, start, parts.get(part, 0.0)))
                start += parts.get(part, 0.0)
        return pieces

    def draw(self, axes: Axes, pens: Pens) -> None:
        for i, part, start, length in self._pieces():
            if length:
                pen = pens[part]
                axes.barh(
                    i, length, left=start, height=0.66, color=pen.color, linewidth=0, gid=pen.gid
                )
        for i, (_, parts) in enumerate(self.bars):
            total = sum(parts.values())
            axes.annotate(
                f"{total:,.0f} ms",
                (total, i),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                color=pens.ink["muted"],
                fontsize="small",
            )
        axes.margins(x=0.16, y=0.02)
        axes.set_xlim(left=0)
        axes.invert_yaxis()
        axes.set_yticks(range(len(self.bars)), [_wrapped(label) for label, _ in self.bars])
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("milliseconds per step")
        set_scale(axes.xaxis, "linear")

    def marks(self, axes: Axes) -> list[Mark]:
        found = []
        for i, part, start, length in self._pieces():
            if length:
                x, y = pixels(axes, start + length / 2, i)
                found.append(
                    Mark(label=part, x=x, y=y, at=self.bars[i][0], says=f"{length:,.1f} ms")
                )
        return found

    def table(self) -> DataTable:
        rows = [
            (
                label,
                *(f"{parts[part]:,.1f}" if part in parts else "" for part in self.labels),
                f"{sum(parts.values()):,.1f}",
            )
            for label, parts in self.bars
        ]
        return DataTable(
            caption="Milliseconds per step",
            columns=("method", *self.labels, "together"),
            rows=tuple(rows),
        )


def _wrapped(label: str) -> str:
    return textwrap.fill(label, 20)


def time_split(view: TimeSplit, found: Collection) -> Chart:
    """The mean over the seeds that ended of the median time of each part."""
    keys = [key for runs in view.lines.values() for key in runs]
    times = step_times(
        found.runs[key]
        for key in dict.fromkeys(keys)
        if key in found.runs and found.runs[key].has_ended
    )
    bars = [(label, parts) for label, some in view.lines.items() if (parts := _parts(some, times))]
    panels = (BarPanel(title="", bars=tuple(bars)),) if bars else ()
    remarks = (*([REMARK] if len(times) > 1 else []), *absent(found, keys))
    return Chart(
        kind=view.kind,
        title=view.title,
        note=view.note,
        panels=panels,
        remarks=remarks,
        keys="Parts",
    )


def _parts(keys: Runs, times: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    runs = [times[key] for key in keys if key in times]
    names = dict.fromkeys(part for seconds in runs for part in seconds if part != "evaluation")
    return {part: 1000 * fmean(seconds.get(part, 0.0) for seconds in runs) for part in names}
