"""From what is on disk to a report: a page, its tables and its figures."""

from holdfast.lab.report._accuracy_table import Grid, grid
from holdfast.lab.report._collect import collect
from holdfast.lab.report._collection import Collection
from holdfast.lab.report._compact import write_compact
from holdfast.lab.report._sections import Section, study_section
from holdfast.lab.report._write import write_report
from holdfast.lab.report.figures import Chart, chart

__all__ = [
    "Chart",
    "Collection",
    "Grid",
    "Section",
    "chart",
    "collect",
    "grid",
    "study_section",
    "write_compact",
    "write_report",
]
