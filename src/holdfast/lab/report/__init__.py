"""Reports: one page of runs and measurements, with its tables and figures."""

from holdfast.lab.report._accuracy_table import grid
from holdfast.lab.report._collection import Collection, collect, write_compact
from holdfast.lab.report._sections import Section, study_section
from holdfast.lab.report._write import check_report_folder, write_report
from holdfast.lab.report.figures import Chart, Grid, chart

__all__ = [
    "Chart",
    "Collection",
    "Grid",
    "Section",
    "chart",
    "check_report_folder",
    "collect",
    "grid",
    "study_section",
    "write_compact",
    "write_report",
]
