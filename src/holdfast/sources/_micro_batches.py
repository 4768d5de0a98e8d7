from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import Tensor, nn

from holdfast.checks import check_count, check_flag
from holdfast.geometry import DenseRows
from holdfast.layout import Layout
from holdfast.sources._batch_loss import (
    LossFunction,
    Reduction,
    check_differentiable,
    detached,
    map_tensors,
    slices,
)
from holdfast.sources._buffers import Buffers
from holdfast.sources._source import DenseSource, check_same_parameters, loss_scale, row_buffer


@final
class MicroBatches(DenseSource):
    """One row per slice of the batch: `n_rows` slices of consecutive samples, one backward each.

    Row i is the gradient of the loss of slice i, scaled so that the mean of all rows is the
    gradient of `loss_fn(model(inputs), targets)`: with `reduction="mean"` the gradient of the mean
    loss of the slice, with "sum" `n_rows` times that of its sum. Every row has its own dropout
    noise and its own batch statistics; whatever the loss normalizes over a batch, such as class
    weights, it normalizes over the slice.

    Every row starts with the same running statistics and other buffers; their values after the
    rows are combined by the coordinate median and count as one update. The loop costs about as much
    as ordinary passes over the slices. One bad sample spoils its row; robust rules tolerate a
    minority of bad *rows*.

    The rows share one buffer [n_rows, d], which the next call overwrites.

    Args:
        model: any module whose parameters share one dtype and one device.
        loss_fn: called as `loss_fn(model(inputs), targets)`; returns a scalar.
        n_rows: number of slices; must divide the number of samples.
        reduction: "mean" or "sum", how the loss combines samples; by default `loss_fn.reduction`
            if it exists, else "mean".
        vectorized: compute all slices at once by `torch.func.vmap`: faster for small models, and
            takes the memory of the whole batch.
        scaler: a gradient scaler, for float16 autocast: the loss is scaled, the rows are unscaled.

    Example:
        >>> model = nn.Linear(3, 2)
        >>> source = MicroBatches(model, nn.CrossEntropyLoss(), n_rows=4)
        >>> x, y = torch.randn(12, 3), torch.zeros(12, dtype=torch.int64)
        >>> rows = source(x, y)
        >>> rows.n, rows.d, source.losses.shape
        (4, 8, torch.Size([4]))
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction,
        *,
        n_rows: int,
        reduction: Reduction | None = None,
        vectorized: bool = False,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        super().__init__(model, loss_fn, reduction, scaler)
        check_count("n_rows", n_rows, at_least=1)
        check_flag("vectorized", vectorized)
        self.n_rows = n_rows
        self.vectorized = vectorized
        self._rows: Tensor | None = None

    def __call__(self, inputs: Any, targets: Any = None) -> DenseRows:
        """The rows of one batch; its tensors hold samples along the first dimension."""
        check_same_parameters(self.model, self.layout)
        batch = detached((inputs, targets))
        parts = slices(batch, self.n_rows)
        self._rows = row_buffer(self._rows, self.n_rows, self.layout)
        if not self.vectorized:
            return self._one_by_one(parts, self._rows)
        batch = map_tensors(lambda tensor: torch.unflatten(tensor, 0, (self.n_rows, -1)), batch)
        return self._all_at_once(batch, self._rows, chunk=self.n_rows)

    def _one_by_one(self, parts: list[Any], rows: Tensor) -> DenseRows:
        scale = loss_scale(self._scaler, rows)
        factor = self._objective.factor(len(rows)) * scale
        losses: list[Tensor] = []
        buffers = Buffers(self.model)
        try:
            with gradient_writer(self.layout) as write:
                for part, row in zip(parts, rows, strict=True):
                    with torch.enable_grad():
                        loss = self._objective.total(part)
                        if not losses:
                            check_differentiable(loss)
                        write(loss * factor, row)
                    losses.append(loss.detach())
                    buffers.end_row()
            self._check(torch.stack(losses))
        except BaseException:
            buffers.restore()
            raise
        buffers.combine()
        return self._rows_of(rows, torch.stack(losses), scale)


@contextmanager
def gradient_writer(layout: Layout) -> Iterator[Callable[[Tensor, Tensor], None]]:
    """Yields a function that writes the gradient of a loss to a row [d].

    Hooks write the gradient of each parameter to its columns as soon as autograd has computed it.
    The list of gradients that `torch.autograd.grad` returns would take the memory of one more
    model. `.grad` is not touched.
    """
    pieces: list[Tensor] = []

    def hook(i: int) -> Callable[[Tensor], Tensor]:
        def copy(gradient: Tensor) -> Tensor:
            pieces[i].copy_(gradient.to_dense() if gradient.is_sparse else gradient)
            # Autograd keeps what the hook returns: the same shape, expanded from one number.
            return gradient if gradient.is_sparse else gradient.new_zeros(()).expand_as(gradient)

        return copy

    def write(loss: Tensor, row: Tensor) -> None:
        pieces[:] = layout.split(row)
        with torch.autocast(loss.device.type, enabled=False):
            found: tuple[Tensor | None, ...] = torch.autograd.grad(
                loss, layout.parameters, allow_unused=True
            )
        for piece, gradient in zip(pieces, found, strict=True):
            if gradient is None:
                piece.zero_()

    handles = [parameter.register_hook(hook(i)) for i, parameter in enumerate(layout.parameters)]
    try:
        yield write
    finally:
        for handle in handles:
            handle.remove()
