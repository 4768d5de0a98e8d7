"""What came out at the end, over something that the runs differ in."""

from collections.abc import Mapping

from holdfast.lab.report._collection import Collection
from holdfast.lab.report._outcome import outcome
from holdfast.lab.report._words import number
from holdfast.lab.report.figures._chart import Chart, absent
from holdfast.lab.report.figures._line_panel import Cross, LinePanel, Spot, Trace, remarks_of
from holdfast.lab.report.figures._metrics import QUANTITIES
from holdfast.lab.report.figures._views import Points, Runs

MOST_TICKS = 6


def points(view: Points, found: Collection) -> Chart:
    """The mean with its 95 % interval, which is cut where no value can lie; a cross at the bottom where a seed diverged."""
    runs = [
        key
        for lines in view.panels.values()
        for line in lines.values()
        for some in line.values()
        for key in some
    ]
    panels = tuple(
        panel
        for panel in (_panel(view, title, lines, found) for title, lines in view.panels.items())
        if panel.labels
    )
    return Chart(
        kind=view.kind,
        title=view.title,
        note=view.note,
        panels=panels,
        remarks=(*remarks_of(panels), *absent(found, runs)),
    )


def _panel(
    view: Points, title: str, lines: Mapping[str, Mapping[float, Runs]], found: Collection
) -> LinePanel:
    quantity = QUANTITIES[view.y]
    traces, crosses = [], []
    for label, line in lines.items():
        pieces, ends = _line(view, label, line, found)
        crosses += ends
        if pieces or ends:
            traces.append(Trace(label=label, pieces=pieces))
    places = sorted({x for line in lines.values() for x in line})
    return LinePanel(
        title=title,
        x_label=view.x_label,
        y_label=quantity.label,
        x_scale=view.x_scale,
        ticks=tuple(places) if len(places) <= MOST_TICKS else (),
        traces=tuple(traces),
        crosses=tuple(crosses),
        spread="bars",
        bounds=quantity.bounds,
    )


def _line(
    view: Points, label: str, line: Mapping[float, Runs], found: Collection
) -> tuple[tuple[tuple[Spot, ...], ...], list[Cross]]:
    """The pieces of a line, which a divergence cuts, and the crosses there."""
    quantity = QUANTITIES[view.y]
    pieces: list[list[Spot]] = [[]]
    crosses = []
    for x, runs in sorted(line.items()):
        result = outcome(found, runs, quantity.at_the_end)
        at, says = f"{view.x_label} {number(x)}", result.words(quantity.form)
        if result.mean is not None:
            half = result.interval
            low, high = (
                (None, None)
                if half is None
                else (quantity.within(result.mean - half), quantity.within(result.mean + half))
            )
            pieces[-1].append(Spot(x=x, y=result.mean, low=low, high=high, at=at, says=says))
        elif result.state == "diverged":
            crosses.append(Cross(label=label, x=x, at=at, says=says))
            pieces.append([])
    return tuple(tuple(piece) for piece in pieces if piece), crosses
