"""The base class of measurements."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from holdfast.registry import Registry


class Measurement(ABC):
    """A result that needs no training, described by its fields."""

    name: ClassVar[str]
    """Short name, which begins the names of its files."""

    @abstractmethod
    def measure(self) -> dict[str, Any]:
        """Measure, and return the result as plain values."""


measurements: Registry[Measurement] = Registry("measurement")
"""Every measurement by its short name."""
