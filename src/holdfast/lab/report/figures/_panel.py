"""What a figure is made of: panels that draw themselves, say what is at a place, and give their figures as a table."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, final

from matplotlib.axes import Axes

from holdfast.lab.report._colors import PRINT
from holdfast.lab.report._looks import Dashes, Look

Shape = Literal["line", "marker", "patch", "frame"]


@final
@dataclass(frozen=True, kw_only=True)
class Pen:
    """A look in real colours."""

    color: str
    marker: str
    dashes: Dashes
    gid: str


@final
@dataclass(frozen=True)
class Pens:
    """What a panel draws with.

    Args:
        looks: by label.
        ink: the value of each colour's name.
    """

    looks: Mapping[str, Look]
    ink: Mapping[str, str]

    def __getitem__(self, label: str) -> Pen:
        """The pen for a label."""
        look = self.looks[label]
        return Pen(
            color=self.ink[look.color],
            marker=look.marker,
            dashes=look.dashes,
            gid=f"series-{look.key}",
        )

    def ink_in_images(self, label: str) -> str:
        """The real colour for a label, because no variable reaches into an image."""
        return PRINT[self.looks[label].color]


@final
@dataclass(frozen=True, kw_only=True)
class Mark:
    """A place in a panel that one can point at.

    Args:
        label: whose it is.
        x: in pixels from the left.
        y: in pixels from below.
        at: the horizontal value in words.
        says: what is there.
    """

    label: str
    x: float
    y: float
    at: str
    says: str


@final
@dataclass(frozen=True, kw_only=True)
class DataTable:
    """Figures as words.

    Args:
        caption: what they are.
        columns: their names; the first column names the line.
        rows: the cells.
        texts: the numbers of the columns that hold texts rather than figures.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: frozenset[int] = frozenset({0})


@dataclass(frozen=True, kw_only=True)
class Panel(ABC):
    """One pair of axes.

    Args:
        title: what it shows; may be empty.
        legend: what this panel alone has to say about a label, beside its name.
    """

    title: str
    legend: Mapping[str, str] = field(default_factory=dict)

    @property
    @abstractmethod
    def height(self) -> float:
        """In shares of the width."""

    @property
    @abstractmethod
    def labels(self) -> Mapping[str, Shape]:
        """What is drawn, in order, and the shape of the little sample beside its name."""

    @abstractmethod
    def draw(self, axes: Axes, pens: Pens) -> None:
        """Draw; each artist that belongs to a label bears its pen's `gid`."""

    @abstractmethod
    def marks(self, axes: Axes) -> list[Mark]:
        """Where one can point, once `axes` have their final place."""

    @abstractmethod
    def table(self) -> DataTable:
        """The same in figures."""


def pixels(axes: Axes, x: float, y: float) -> tuple[float, float]:
    """Where a point of the data lies."""
    placed = axes.transData.transform((x, y))
    return float(placed[0]), float(placed[1])
