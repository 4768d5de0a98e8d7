"""What is found without training."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar


class Measurement(ABC):
    """Something to measure, described by its fields; `measure` does it."""

    name: ClassVar[str]
    """The short name, which is part of its file's."""

    @abstractmethod
    def measure(self) -> dict[str, Any]:
        """What was found, as plain values."""
