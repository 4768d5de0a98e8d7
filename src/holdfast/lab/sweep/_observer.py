"""Progress events of a sweep."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.lab.records import Record
from holdfast.lab.sweep._plan import PlannedRun


class SweepObserver(ABC):
    """Receives the progress events of a sweep, in the process that called it."""

    @abstractmethod
    def planned(self, runs: Sequence[PlannedRun]) -> None:
        """The sweep starts with these runs."""

    @abstractmethod
    def known(self, run: PlannedRun) -> None:
        """The run had ended before, in its folder or elsewhere, and is skipped."""

    @abstractmethod
    def began(self, run: PlannedRun) -> None:
        """A process starts the run, or resumes it after its last checkpoint."""

    @abstractmethod
    def stepped(self, run: PlannedRun, entry: Mapping[str, Any]) -> None:
        """The run wrote this entry to its record; entries come in order, with a short delay."""

    @abstractmethod
    def ended(self, run: PlannedRun, record: Record) -> None:
        """The run finished, diverged, or stopped on request (`record.end` is None)."""

    @abstractmethod
    def failed(self, run: PlannedRun, reason: str) -> None:
        """The run failed for this reason, a single line; the other runs continue."""
