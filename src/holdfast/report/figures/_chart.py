"""A figure before it is drawn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from holdfast.report._collection import Collection
from holdfast.report._words import counted
from holdfast.report.figures._panel import DataTable, Panel, Shape


@final
@dataclass(frozen=True, kw_only=True)
class Picture:
    """A small image: PNG in base64, and what it shows."""

    data: str
    alt: str


@final
@dataclass(frozen=True, kw_only=True)
class PictureGrid:
    """Images in lines and columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Picture, ...]], ...]


@final
@dataclass(frozen=True, kw_only=True)
class Chart:
    """A figure.

    Args:
        kind: of its view.
        title: what it shows.
        note: what one must know to read it.
        panels: none if there is nothing to draw.
        remarks: sentences about what is not there, or not seen.
        keys: what its labels are called together.
        tables: to be seen at once, unlike those of the panels.
        pictures: if it is made of images.
    """

    kind: str
    title: str
    note: str = ""
    panels: tuple[Panel, ...] = ()
    remarks: tuple[str, ...] = ()
    keys: str = "Methods"
    tables: tuple[DataTable, ...] = ()
    pictures: PictureGrid | None = None

    def shape(self, label: str) -> Shape:
        """Of the little sample beside a label."""
        return next(panel.shape(label) for panel in self.panels if label in panel.labels)

    @property
    def labels(self) -> tuple[str, ...]:
        """Of all panels, each once."""
        return tuple(dict.fromkeys(label for panel in self.panels for label in panel.labels))


def absent(found: Collection, runs: list[str]) -> tuple[str, ...]:
    """What is to be said of runs that a figure needs and that are not there, or not over."""
    wanted = list(dict.fromkeys(runs))
    missing = [key for key in wanted if key not in found.runs]
    going = [key for key in wanted if key in found.runs and not found.runs[key].has_ended]
    if missing and len(missing) == len(wanted):
        return (nothing_yet(len(wanted), "run"),)
    said = []
    if missing:
        said.append(f"{len(missing):,} of its {counted(len(wanted), 'run')} {_are(missing)} not there yet.")
    if going and len(wanted) == 1:
        said.append("Its run is unfinished.")
    elif going:
        said.append(f"{len(going):,} of its {counted(len(wanted), 'run')} {_are(going)} unfinished.")
    return tuple(said)


def remarks_of(panels: Sequence[Panel]) -> tuple[str, ...]:
    """Those of all panels, each once, as one paragraph."""
    said = dict.fromkeys(remark for panel in panels for remark in panel.remarks)
    return (" ".join(said),) if said else ()


def nothing_yet(n: int, noun: str) -> str:
    """What stands in the place of a figure all of whose `n` things are missing."""
    return f"Nothing to show yet: {f'its {noun}' if n == 1 else f'none of its {n:,} {noun}s'} is {'not ' if n == 1 else ''}there."


def _are(things: list[str]) -> str:
    return "is" if len(things) == 1 else "are"
