"""Measured values as a table."""

from holdfast.lab.report._collection import Collection
from holdfast.lab.report._words import number
from holdfast.lab.report.figures._chart import Chart, not_yet
from holdfast.lab.report.figures._panel import DataTable
from holdfast.lab.report.figures._views import MeasuredValue, ValueTable

NOT_MEASURED = "not measured"
NONE = "none"
"""What stands for a value that is None: there is none."""


def values(view: ValueTable, found: Collection) -> Chart:
    """A figure without a drawing: its table is seen at once."""
    wanted = [cell for row in view.rows.values() for cell in row if not isinstance(cell, str)]
    missing = sum(_text(cell, found) == NOT_MEASURED for cell in wanted)
    remarks = not_yet(missing, len(wanted), "value")
    if missing and missing == len(wanted):
        return Chart(kind=view.kind, title=view.title, note=view.note, remarks=remarks)
    rows = tuple((label, *(_text(cell, found) for cell in row)) for label, row in view.rows.items())
    return Chart(
        kind=view.kind,
        title=view.title,
        note=view.note,
        remarks=remarks,
        tables=(DataTable(caption=view.title, columns=("", *view.columns), rows=rows),),
    )


def _text(cell: MeasuredValue | str, found: Collection) -> str:
    if isinstance(cell, str):
        return cell
    record = found.measurements.get(cell.measurement)
    node: object = None if record is None else record.result
    if node is None:
        return NOT_MEASURED
    for key in cell.value.split("."):
        if not isinstance(node, dict) or key not in node:
            return NOT_MEASURED
        node = node[key]
    if node is None:
        return NONE
    return (
        number(float(node))
        if isinstance(node, (int, float)) and not isinstance(node, bool)
        else str(node)
    )
