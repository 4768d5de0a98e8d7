"""Tables of final accuracies."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from holdfast.lab.report._outcome import State

DEEPEST = 0.62
"""Opacity of the color of a cell with 100 %, on which text can still be read."""


@final
@dataclass(frozen=True, kw_only=True)
class Cell:
    """One method under one threat.

    Args:
        text: mean, or a word for the state.
        detail: range over the seeds, and how many of them are missing; may be empty.
        state: whether there is a value, or why not.
        is_best: whether no other mean of the line reads greater; False until the line is complete.
        paper: the paper's cell, None where the paper has no such column.
        value: the mean in percent, in a table that is shown as a heat map.
    """

    text: str
    detail: str = ""
    state: State
    is_best: bool = False
    paper: str | None = None
    value: float | None = None

    @property
    def words(self) -> str:
        """Text and detail."""
        return f"{self.text} ({self.detail})" if self.detail else self.text

    @property
    def depth(self) -> float | None:
        """Opacity of its color: of the square, because most values are in the upper half."""
        return None if self.value is None else round(DEEPEST * (self.value / 100) ** 2, 3)


@final
@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table of accuracies.

    Args:
        title: shown above it.
        note: what a reader must know to read it.
        caption: what its cells are.
        columns: the columns, each with whether the paper has it.
        groups: headings, which may be empty, and the lines below each, a label and its cells.
        settings: what is added to some of the labels in small print.
    """

    title: str
    note: str
    caption: str
    columns: tuple[tuple[str, bool], ...]
    groups: tuple[tuple[str, tuple[tuple[str, tuple[Cell, ...]], ...]], ...]
    settings: Mapping[str, str] = field(default_factory=dict)
