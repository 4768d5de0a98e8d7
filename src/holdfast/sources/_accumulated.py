import weakref
from typing import Any, final

import torch
from torch import Tensor, nn

from holdfast.checks import check_count, failure
from holdfast.geometry import DenseRows
from holdfast.sources._buffers import Buffers
from holdfast.sources._source import (
    check_same_parameters,
    check_scaler,
    loss_scale,
    row_buffer,
    trainable,
    write_row,
)


@final
class Accumulated:
    """One row per ordinary `backward()`: for loops whose forward pass and loss are their own affair.

    Call it after each `backward()`. It moves what stands in `.grad` to the next row and clears `.grad`; every `n_rows` calls it hands the rows
    over, and None in between. A row is the gradient as it came: for rows of mean losses do not divide the loss by the number of
    accumulation steps, because a robust rule already returns something like the mean of the rows.

    Running statistics and other buffers begin the same for every row; what the rows make of them is combined by the coordinate median when
    the rows are handed over. Checkpoint then, not in between: rows that are not complete are part of no state.

    The rows stand in one buffer [n_rows, d], which the following calls overwrite.

    Args:
        model: the module whose gradients are collected; its parameters share one dtype and one device.
        n_rows: how many backward passes make one step.
        scaler: a gradient scaler, if the losses are scaled (`scaler.scale(loss).backward()`): the rows are scaled back.

    Attributes:
        layout: which columns belong to which parameter.

    Example:
        >>> model = nn.Linear(3, 1)
        >>> source = Accumulated(model, n_rows=2)
        >>> for x in torch.randn(4, 8, 3):
        ...     model(x).square().mean().backward()
        ...     rows = source()
        ...     print(None if rows is None else (rows.n, rows.d))
        None
        (2, 4)
        None
        (2, 4)
    """

    def __init__(
        self, model: nn.Module, *, n_rows: int, scaler: torch.amp.GradScaler | None = None
    ) -> None:
        self.layout = trainable(model)
        self._model = model
        check_count("n_rows", n_rows, at_least=1)
        self.n_rows = n_rows
        self._scaler = check_scaler(scaler)
        self._rows: Tensor | None = None
        self._n_held = 0
        self._buffers = Buffers(model)
        self._has_begun = False
        handle = model.register_forward_pre_hook(_Watch(self))
        weakref.finalize(self, handle.remove)

    def __call__(self) -> DenseRows | None:
        """Take the gradient of the last backward pass; the rows, if there are `n_rows` of them now."""
        check_same_parameters(self._model, self.layout)
        gradients = [parameter.grad for parameter in self.layout.parameters]
        if all(gradient is None for gradient in gradients):
            raise failure("model", "have gradients: call `backward()` before each call", "none")
        self._rows = row_buffer(self._rows, self.n_rows, self.layout)
        row = self._rows[self._n_held]
        write_row(self.layout, gradients, row)
        if self._scaler is not None:
            row.mul_(1.0 / loss_scale(self._scaler, row))
        if (
            not self._has_begun
        ):  # no forward pass in training mode was seen, so that no buffer was changed
            self._begin()
        self._buffers.end_row()
        for parameter in self.layout.parameters:
            parameter.grad = None
        self._n_held = (self._n_held + 1) % self.n_rows
        if self._n_held:
            return None
        self._buffers.combine()
        self._has_begun = False
        return self.layout.rows(self._rows)

    def _begin(self) -> None:
        self._buffers.begin()
        self._has_begun = True


class _Watch:
    """Tells a source, as long as it lives, of the forward passes that may change buffers. Copies of a model have no source."""

    def __init__(self, source: Accumulated | None) -> None:
        self._source = None if source is None else weakref.ref(source)

    def __call__(self, model: nn.Module, _: Any) -> None:
        source = None if self._source is None else self._source()
        if (
            source is not None
            and not source._has_begun
            and model.training
            and torch.is_grad_enabled()
        ):
            source._begin()

    def __reduce__(self) -> tuple[type["_Watch"], tuple[None]]:
        return _Watch, (None,)
