"""Tables: final accuracies beside the paper's, and measured values."""

from dataclasses import dataclass
from typing import final

from holdfast.lab.records.views._view import View


@final
@dataclass(frozen=True, kw_only=True)
class PaperCell:
    """What the paper's table says: a percentage and the half-width of its interval, or that nothing is there."""

    mean: float | None
    interval: float | None = None


@final
@dataclass(frozen=True, kw_only=True)
class TableRow:
    """One line of a table.

    Args:
        group: the heading it stands under; may be empty.
        label: its name.
        runs: for each column the runs, one per seed.
        paper: for each column what the paper has, None where it has no such column.
    """

    group: str
    label: str
    runs: tuple[tuple[str, ...], ...]
    paper: tuple[PaperCell | None, ...]


@final
@dataclass(frozen=True, kw_only=True)
class AccuracyTable(View):
    """Final test accuracies: a line per threat, a column per method, beside the paper's."""

    kind = "accuracy-table"

    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]


@final
@dataclass(frozen=True, kw_only=True)
class MeasuredValue:
    """A cell: a value of a measurement's result (`errors.mean` is `mean` in the mapping `errors`), or a text."""

    measurement: str = ""
    value: str = ""
    text: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class ValueRow:
    """One line of a table of measured values."""

    label: str
    cells: tuple[MeasuredValue, ...]


@final
@dataclass(frozen=True, kw_only=True)
class ValueTable(View):
    """Measured values, and what one may hold against them."""

    kind = "value-table"

    columns: tuple[str, ...]
    rows: tuple[ValueRow, ...]
