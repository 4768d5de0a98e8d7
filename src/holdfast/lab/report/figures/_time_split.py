"""Time per step by its parts."""

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import final

from matplotlib.axes import Axes

from holdfast.lab.report._collection import Collection
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
from holdfast.lab.report.figures._line_panel import set_scale
from holdfast.lab.report.figures._metrics import REMARK, step_times
from holdfast.lab.report.figures._views import Runs, TimeSplit

PARTS = ("data", "attack", "gradient", "aggregation", "optimizer")
"""Parts in the order of a step; others follow."""


@final
@dataclass(frozen=True, kw_only=True)
class BarPanel(Panel):
    """One bar per method, in milliseconds, stacked by part."""

    bars: tuple[tuple[str, dict[str, float]], ...]

    @property
    def height(self) -> float:
        n_lines = max(len(_wrapped(label).splitlines()) for label, _ in self.bars)
        return 0.16 + (0.045 + 0.04 * n_lines) * len(self.bars)

    @property
    def labels(self) -> Mapping[str, Shape]:
        present = {part for _, parts in self.bars for part in parts}
        known = [part for part in PARTS if part in present]
        return dict.fromkeys([*known, *sorted(present.difference(PARTS))], "patch")

    def _pieces(self) -> Iterator[tuple[int, str, float, float]]:
        """Yield bar, part, start and length."""
        for i, (_, parts) in enumerate(self.bars):
            start = 0.0
            for part in self.labels:
                if parts.get(part):
                    yield i, part, start, parts[part]
                    start += parts[part]

    def draw(self, axes: Axes, pens: Pens) -> None:
        for i, part, start, length in self._pieces():
            pen = pens[part]
            axes.barh(i, length, 0.66, start, color=pen.color, linewidth=0, gid=pen.gid)
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
        return [
            Mark.of(axes, part, (start + length / 2, i), self.bars[i][0], f"{length:,.1f} ms")
            for i, part, start, length in self._pieces()
        ]

    def table(self) -> DataTable:
        rows = []
        for label, parts in self.bars:
            cells = [f"{parts[part]:,.1f}" if part in parts else "" for part in self.labels]
            rows.append((label, *cells, f"{sum(parts.values()):,.1f}"))
        columns = ("method", *self.labels, "total")
        return DataTable(caption="Milliseconds per step", columns=columns, rows=tuple(rows))


def time_split(view: TimeSplit, collection: Collection) -> Chart:
    """Draw the mean over the seeds that ended of the median time of each part."""
    keys = [key for runs in view.lines.values() for key in runs]
    present = [collection.runs[key] for key in dict.fromkeys(keys) if key in collection.runs]
    times = step_times(run for run in present if run.has_ended)
    bars = [(label, parts) for label, some in view.lines.items() if (parts := _parts(some, times))]
    panels = [BarPanel(title="", bars=tuple(bars))] if bars else []
    remarks = [REMARK] if len(times) > 1 else []
    return chart_of(view, panels, [*remarks, *absent(collection, keys)], keys="Parts")


def _parts(keys: Runs, times: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    runs = [times[key] for key in keys if key in times]
    names = dict.fromkeys(part for seconds in runs for part in seconds if part != "evaluation")
    return {part: 1000 * fmean(seconds.get(part, 0.0) for seconds in runs) for part in names}


def _wrapped(label: str) -> str:
    return textwrap.fill(label, 20)
