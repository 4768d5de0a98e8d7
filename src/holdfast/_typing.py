"""Type names shared by all packages."""

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor

TensorOrTensors = Tensor | Sequence[Tensor]
"""One [n, d] tensor, or one [n, ...] tensor per parameter."""

ColumnFunction = Callable[[Tensor], Tensor]
"""Maps a chunk of columns [n, c] to one row [c], column by column."""

Score = Callable[[Tensor], float]
"""Rates a direction [d] on trusted data; larger is better."""

Rate = float | Tensor
"""A learning rate: one number, or one for each column [d]."""


class RowLayout(Protocol):
    """Maps columns of rows to parameters."""

    @property
    def sizes(self) -> tuple[int, ...]: ...
    def write_gradient(self, direction: Tensor) -> None: ...
