"""From what is on disk to a report: a page, its tables and its figures."""

from holdfast.report._collect import collect
from holdfast.report._collection import Collection
from holdfast.report._compact import write_compact
from holdfast.report._write import write_report

__all__ = ["Collection", "collect", "write_compact", "write_report"]
