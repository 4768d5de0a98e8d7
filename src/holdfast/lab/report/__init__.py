"""From what is on disk to a report: a page, its tables and its figures."""

from holdfast.lab.report._collect import collect
from holdfast.lab.report._collection import Collection
from holdfast.lab.report._compact import write_compact
from holdfast.lab.report._write import write_report

__all__ = ["Collection", "collect", "write_compact", "write_report"]
