"""From a loss to a row, one parameter at a time."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from holdfast.layout import Layout


class RowWriter:
    """Writes each parameter's gradient to its place in a row as soon as autograd has it, and lets go of it.

    A list of all gradients, as `torch.autograd.grad` returns it, would take the memory of one more model. `.grad` is not touched.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._pieces: list[Tensor] = []

    def __enter__(self) -> Self:
        self._handles = [
            parameter.register_hook(self._hook(i))
            for i, parameter in enumerate(self._layout.parameters)
        ]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for handle in self._handles:
            handle.remove()

    def write(self, loss: Tensor, row: Tensor) -> None:
        """Write the gradient of the loss to the row [d]; zeros for parameters that it does not depend on."""
        self._pieces = self._layout.split(row)
        with torch.autocast(loss.device.type, enabled=False):
            gradients: tuple[Tensor | None, ...] = torch.autograd.grad(
                loss, self._layout.parameters, allow_unused=True
            )
        for piece, gradient in zip(self._pieces, gradients, strict=True):
            if gradient is None:
                piece.zero_()

    def _hook(self, i: int) -> Callable[[Tensor], Tensor]:
        def write(gradient: Tensor) -> Tensor:
            self._pieces[i].copy_(gradient.to_dense() if gradient.is_sparse else gradient)
            # What autograd keeps in its place has the shape and no memory.
            return gradient if gradient.is_sparse else gradient.new_zeros(()).expand_as(gradient)

        return write
