"""Type names shared by every package."""

from collections.abc import Callable, Sequence

from torch import Tensor

TensorOrTensors = Tensor | Sequence[Tensor]
"""One [n, d] tensor, or one [n, ...] tensor per parameter."""

Score = Callable[[Tensor], float]
"""Judges a direction [d] on trusted data: larger is better."""
