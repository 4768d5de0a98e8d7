"""A figure before it is drawn."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from holdfast.lab.report._collection import Collection
from holdfast.lab.report._words import counted
from holdfast.lab.report.figures._panel import DataTable, Panel, Shape


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

    @property
    def labels(self) -> Mapping[str, Shape]:
        """Of all panels, each once, with the shape of the little sample beside it."""
        return {label: shape for panel in self.panels for label, shape in panel.labels.items()}


def absent(found: Collection, runs: list[str]) -> tuple[str, ...]:
    """What is to be said of runs that a figure needs and that are not there, or not over."""
    wanted = list(dict.fromkeys(runs))
    missing = [key for key in wanted if key not in found.runs]
    going = [key for key in wanted if key in found.runs and not found.runs[key].has_ended]
    said = not_yet(len(missing), len(wanted), "run")
    if not going:
        return said
    if len(wanted) == 1:
        return (*said, "Its run is unfinished.")
    return (
        *said,
        f"{len(going):,} of its {counted(len(wanted), 'run')} {_are(len(going))} unfinished.",
    )


def not_yet(n_missing: int, n: int, noun: str) -> tuple[str, ...]:
    """What is to be said of a figure that needs `n` things, of which some are missing: nothing, or a sentence.

    Example:
        >>> not_yet(0, 3, "run"), not_yet(1, 3, "run")
        ((), ('1 of its 3 runs is not there yet.',))
        >>> not_yet(1, 1, "run"), not_yet(3, 3, "run")
        (('Nothing to show yet: its run is not there.',), ('Nothing to show yet: none of its 3 runs is there.',))
    """
    if n_missing == 0:
        return ()
    if n_missing == n:
        return (
            f"Nothing to show yet: {f'its {noun} is not' if n == 1 else f'none of its {n:,} {noun}s is'} there.",
        )
    return (f"{n_missing:,} of its {counted(n, noun)} {_are(n_missing)} not there yet.",)


def _are(n: int) -> str:
    return "is" if n == 1 else "are"
