"""Type names shared by every package."""

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor

TensorOrTensors = Tensor | Sequence[Tensor]
"""One [n, d] tensor, or one [n, ...] tensor per parameter."""

Score = Callable[[Tensor], float]
"""Judges a direction [d] on trusted data: larger is better."""


class RowLayout(Protocol):
    """What rows may carry to say which of their columns belong to which parameter."""

    @property
    def sizes(self) -> tuple[int, ...]: ...
    def write_gradient(self, direction: Tensor) -> None: ...
