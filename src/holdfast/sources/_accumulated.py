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
    """One row per ordinary `backward()`, for loops with their own forward pass and loss.

    Call it after each `backward()`. It moves `.grad` to the next row and clears `.grad`; every
    `n_rows` calls it returns the rows, otherwise None. Do not divide a mean loss by the number of
    accumulation steps: a robust rule already returns an average of the rows.

    Every row starts with the same running statistics and other buffers; their values after the
    rows are combined by the coordinate median when the rows are returned. Save checkpoints only
    then: incomplete rows are not part of any state.

    Row i is the gradient of the i-th backward pass of the step, so its samples are those of that
    pass. If the losses of the passes average unequal numbers of terms (padded tokens), give the
    rule these numbers as `row_weights`.

    The rows share one buffer [n_rows, d], which the following calls overwrite.

    Args:
        model: any module whose parameters share one dtype and one device.
        n_rows: number of backward passes per step.
        scaler: a gradient scaler, if the losses are scaled (`scaler.scale(loss).backward()`): the
            rows are unscaled.

    Attributes:
        layout: the columns of each parameter.

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
        self._buffers: Buffers | None = None  # since the first forward pass of the step
        handle = model.register_forward_pre_hook(_BeginHook(self))
        weakref.finalize(self, handle.remove)

    def __call__(self) -> DenseRows | None:
        """Take the gradient of the last backward pass; returns the rows if they are complete."""
        check_same_parameters(self._model, self.layout)
        gradients = [parameter.grad for parameter in self.layout.parameters]
        if all(gradient is None for gradient in gradients):
            raise failure("model", "have gradients: call `backward()` before each call", "none")
        self._rows = row_buffer(self._rows, self.n_rows, self.layout)
        row = self._rows[self._n_held]
        write_row(self.layout, gradients, row)
        if self._scaler is not None:
            row.mul_(1.0 / loss_scale(self._scaler, row))
        if self._buffers is None:  # no forward pass in training mode: no buffer has changed
            self._buffers = Buffers(self._model)
        self._buffers.end_row()
        for parameter in self.layout.parameters:
            parameter.grad = None
        self._n_held = (self._n_held + 1) % self.n_rows
        if self._n_held:
            return None
        self._buffers.combine()
        self._buffers = None
        return self.layout.rows(self._rows)


class _BeginHook:
    """Stores the buffers before the first forward pass of a step that may change them.

    It refers to its source weakly, so that the source can be deleted while the model lives; copies
    and pickles of the model have no source.
    """

    def __init__(self, source: Accumulated | None) -> None:
        self._source = None if source is None else weakref.ref(source)

    def __call__(self, model: nn.Module, _: Any) -> None:
        source = None if self._source is None else self._source()
        if source is None or source._buffers is not None:
            return
        if model.training and torch.is_grad_enabled():
            source._buffers = Buffers(model)

    def __reduce__(self) -> tuple[type["_BeginHook"], tuple[None]]:
        return _BeginHook, (None,)
