"""What every screen shows."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from holdfast.lab.config import Config
from holdfast.lab.data import Progress
from holdfast.lab.records import Record


class Screen(ABC):
    """Shows downloads and runs as they go."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Leave the terminal in order."""

    @abstractmethod
    def fetching(self, progress: Progress) -> None:
        """A piece of a download came."""

    @abstractmethod
    def begin(self, config: Config, folder: Path) -> None:
        """A run begins, or goes on: its first entry tells from where."""

    @abstractmethod
    def entry(self, entry: Mapping[str, Any]) -> None:
        """A step was made."""

    @abstractmethod
    def end(self, record: Record, go_on: str) -> None:
        """The run ended or stopped; `go_on` is the command that continues it."""
