"""What a sweep tells whoever watches it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.lab.config import Config
from holdfast.lab.paper.measurements import Measurement
from holdfast.lab.records import Record


class SweepObserver(ABC):
    """Is told about every run of a sweep."""

    @abstractmethod
    def planned(self, n_measurements: int, configs: list[Config]) -> None:
        """So much there is in all."""

    @abstractmethod
    def measured(self, measurement: Measurement, *, is_new: bool) -> None:
        """A measurement is there."""

    @abstractmethod
    def not_measured(self, measurement: Measurement, reason: str) -> None:
        """A measurement could not be made; the others go on."""

    @abstractmethod
    def known(self, config: Config) -> None:
        """A run had ended before, here or elsewhere."""

    @abstractmethod
    def began(self, worker: int, config: Config, folder: Path) -> None:
        """A worker takes a run, from its beginning or from where it stopped."""

    @abstractmethod
    def stepped(self, worker: int, entry: Mapping[str, Any]) -> None:
        """A worker made a step; not every step is told."""

    @abstractmethod
    def ended(self, worker: int, config: Config, record: Record) -> None:
        """A run finished, diverged, or stopped because it was asked to."""

    @abstractmethod
    def failed(self, worker: int, config: Config, reason: str) -> None:
        """A run could not be made; the others go on."""
