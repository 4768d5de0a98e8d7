"""Figures before they are drawn: charts made of panels."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, final

from matplotlib.axes import Axes

from holdfast.lab.report._collection import Collection
from holdfast.lab.report._formatting import counted
from holdfast.lab.report._series_style import PRINT, SeriesStyle
from holdfast.lab.report.figures._grid import Grid
from holdfast.lab.report.figures._views import View

Shape = Literal["line", "marker", "patch", "frame"]
"""Shape of the sample beside a label."""


@final
@dataclass(frozen=True)
class Pens:
    """The styles of labels, and the value of each color name in one output (`ink`)."""

    styles: Mapping[str, SeriesStyle]
    ink: Mapping[str, str]

    def __getitem__(self, label: str) -> SeriesStyle:
        """Return the style of a label with the value of its color."""
        style = self.styles[label]
        return replace(style, color=self.ink[style.color])

    def image_color(self, label: str) -> str:
        """Return a real color for a label: images cannot use CSS variables."""
        return PRINT[self.styles[label].color]


@final
@dataclass(frozen=True, kw_only=True)
class Mark:
    """A value that is shown under the pointer, at pixels from the left and from the bottom.

    `at` is the horizontal value as text, `says` the value itself.
    """

    label: str
    x: float
    y: float
    at: str
    says: str

    @staticmethod
    def of(axes: Axes, label: str, place: tuple[float, float], at: str, says: str) -> "Mark":
        """Make a mark at a point in data coordinates, after layout of the axes."""
        x, y = map(float, axes.transData.transform(place))
        return Mark(label=label, x=x, y=y, at=at, says=says)


@final
@dataclass(frozen=True, kw_only=True)
class DataTable:
    """A table; the first column names the row, `texts` are the columns aligned as text.

    `labels` are those of the rows in figures, which have a color; may be empty.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: frozenset[int] = frozenset({0})
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Panel(ABC):
    """One pair of axes; `legend` is text that this panel adds to labels."""

    title: str
    legend: Mapping[str, str] = field(default_factory=dict)

    @property
    def height(self) -> float:
        """Height as a share of the width."""
        return 0.7

    @property
    @abstractmethod
    def labels(self) -> Mapping[str, Shape]:
        """Labels in the order of the legend, with the shape of their samples."""

    @abstractmethod
    def draw(self, axes: Axes, pens: Pens) -> None:
        """Draw; each artist of a label has its pen's `gid`."""

    @abstractmethod
    def marks(self, axes: Axes) -> list[Mark]:
        """Return the points with values, after layout of `axes`."""

    @abstractmethod
    def table(self) -> DataTable:
        """Return the values as a table."""


@final
@dataclass(frozen=True, kw_only=True)
class PictureGrid:
    """Images in rows and columns: each row a label and PNG files in base64."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]


@final
@dataclass(frozen=True, kw_only=True)
class Chart:
    """A figure.

    Args:
        kind, title, note: of its view.
        panels: empty if there is nothing to draw.
        remarks: sentences about missing or hidden values.
        keys: collective name of the labels.
        tables: tables that are shown with the figure, unlike those of the panels.
        pictures: images, if it is made of them; the page shows them in place of the panels.
        grid: a table, if it is one; likewise.
    """

    kind: str
    title: str
    note: str = ""
    panels: tuple[Panel, ...] = ()
    remarks: tuple[str, ...] = ()
    keys: str = "Methods"
    tables: tuple[DataTable, ...] = ()
    pictures: PictureGrid | None = None
    grid: Grid | None = None

    @property
    def labels(self) -> Mapping[str, Shape]:
        """Labels of all panels."""
        return {label: shape for panel in self.panels for label, shape in panel.labels.items()}


def chart_of(
    view: View, panels: Iterable[Panel] = (), remarks: Iterable[str] = (), **more: Any
) -> Chart:
    """Make the chart of a view."""
    more |= {"panels": tuple(panels), "remarks": tuple(remarks)}
    return Chart(kind=view.kind, title=view.title, note=view.note, **more)


def absent(found: Collection, runs: list[str]) -> tuple[str, ...]:
    """Sentences about runs of a figure that are missing or unfinished."""
    wanted = list(dict.fromkeys(runs))
    missing = [key for key in wanted if key not in found.runs]
    going = [key for key in wanted if key in found.runs and not found.runs[key].has_ended]
    said = not_yet(len(missing), len(wanted), "run")
    if not going:
        return said
    if len(wanted) == 1:
        return (*said, "Its run is unfinished.")
    all_runs = counted(len(wanted), "run")
    return (*said, f"{len(going):,} of its {all_runs} {_are(len(going))} unfinished.")


def not_yet(n_missing: int, n: int, noun: str) -> tuple[str, ...]:
    """A sentence about missing inputs of a figure, or none.

    Example:
        >>> not_yet(0, 3, "run"), not_yet(1, 3, "run")
        ((), ('1 of its 3 runs is missing.',))
        >>> not_yet(1, 1, "run")
        ('Nothing to show yet: its run is missing.',)
        >>> not_yet(3, 3, "run")
        ('Nothing to show yet: all of its 3 runs are missing.',)
    """
    if n_missing == 0:
        return ()
    if n_missing == n:
        what = f"its {noun} is" if n == 1 else f"all of its {n:,} {noun}s are"
        return (f"Nothing to show yet: {what} missing.",)
    return (f"{n_missing:,} of its {counted(n, noun)} {_are(n_missing)} missing.",)


def _are(n: int) -> str:
    return "is" if n == 1 else "are"
