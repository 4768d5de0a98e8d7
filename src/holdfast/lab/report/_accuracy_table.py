"""Tables of final accuracies beside the paper's."""

from itertools import groupby

from holdfast.lab.report._collection import Collection
from holdfast.lab.report._formatting import percent
from holdfast.lab.report._outcome import Outcome, outcome
from holdfast.lab.report.figures import AccuracyTable, Cell, Grid, PaperCell, TableRow
from holdfast.lab.report.figures._metrics import accuracy_in_percent

EMPTY = "—"
"""Shown for an empty cell of the paper."""

EMPTY_WORDS = "empty in the paper"

CAPTION = (
    "Mean over the seeds, and their range in small print. The best mean of a line is bold when the "
    "line is complete."
)


def grid(view: AccuracyTable, collection: Collection) -> Grid:
    """Return the table that shows `view`."""
    n = len(view.columns)
    lines = [(row.group, (row.label, _cells(row, n, collection))) for row in view.rows]
    columns = tuple(
        (name, any(row.paper[i : i + 1] not in ((), (None,)) for row in view.rows))
        for i, name in enumerate(view.columns)
    )
    has_paper = any(has_paper for _, has_paper in columns)
    return Grid(
        title=view.title,
        note=view.note,
        caption=CAPTION + (" Values of the paper are in italics." if has_paper else ""),
        columns=columns,
        groups=tuple(
            (group, tuple(line for _, line in some))
            for group, some in groupby(lines, key=lambda pair: pair[0])
        ),
    )


def _cells(row: TableRow, n: int, collection: Collection) -> tuple[Cell, ...]:
    """Return a cell for each of `n` columns; cells that the row leaves out were not run."""
    results = [
        outcome(collection, row.runs[i] if i < len(row.runs) else (), accuracy_in_percent)
        for i in range(n)
    ]
    ranks = [_rank(result) for result in results]
    is_whole = all(result.n_ended == result.n_wanted > 0 for result in results)
    best = max((rank for rank in ranks if rank is not None), default=None) if is_whole else None
    return tuple(
        Cell(
            text=result.text(),
            detail=result.detail(),
            state=result.state,
            is_best=best is not None and ranks[i] == best,
            paper=_paper(row.paper[i] if i < len(row.paper) else None),
        )
        for i, result in enumerate(results)
    )


def _rank(result: Outcome) -> float | None:
    """Return the mean as it is shown, so that equal texts are equally good."""
    return None if result.mean is None else float(percent(result.mean))


def _paper(cell: PaperCell | None) -> str | None:
    if cell is None:
        return None
    if cell.mean is None:
        return EMPTY
    interval = "" if cell.interval is None else f" ± {cell.interval:.2f}"
    return f"{cell.mean:.2f}{interval}"
