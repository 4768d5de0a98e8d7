from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
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
    picked,
    slice_size,
    tensors_of,
)
from holdfast.sources._buffers import Buffers, without_side_effects
from holdfast.sources._random_state import random_state, set_random_state
from holdfast.sources._source import (
    DenseSource,
    TermsFunction,
    check_same_parameters,
    loss_scale,
    row_buffer,
)
from holdfast.sources._vectorized import holds_vmap_tensors, pays_vectorized


@final
class MicroBatches(DenseSource):
    """One row per slice of the batch: `n_rows` slices of consecutive samples, one backward each.

    Row i is the gradient of the loss of slice i, scaled so that the mean of all rows is the
    gradient of `loss_fn(model(inputs), targets)`: with `reduction="mean"` the gradient of the mean
    loss of the slice, with "sum" `n_rows` times that of its sum. Every row has its own dropout
    noise and its own batch statistics; normalization over a batch, such as that of class weights,
    is over the slice.

    Every row starts with the same running statistics and other buffers; their values after the rows
    are combined by the coordinate median and count as one update. The cost is about that of
    ordinary passes over the slices, less for small models. One bad sample makes its row bad; robust
    rules tolerate a minority of bad *rows*.

    At the first batch, copies of one sample show whether the loss combines samples as `reduction`
    says.

    The rows share one buffer [n_rows, d], which the next call overwrites.

    Args:
        model: any module whose parameters share one dtype and one device.
        loss_fn: called as `loss_fn(model(inputs), targets)`; returns a scalar.
        n_rows: number of slices; must divide the number of samples.
        reduction: "mean" or "sum", how the loss combines samples; by default `loss_fn.reduction`
            if it exists, else "mean".
        vectorized: compute all slices at once by `torch.func.vmap`, which is faster for small
            models and takes the memory of the whole batch, or one after the other. By default all
            at once if rows and activations are small and the model supports it.
        terms: a function of inputs and targets that returns the numbers of terms [n] which the
            losses of the samples average, such as tokens without padding; sets `row_weights`.
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
        vectorized: bool | None = None,
        terms: TermsFunction | None = None,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        super().__init__(model, loss_fn, reduction, terms, scaler)
        check_count("n_rows", n_rows, at_least=1)
        if vectorized is not None:
            check_flag("vectorized", vectorized)
        self.n_rows = n_rows
        self.vectorized = vectorized
        self._pays_vectorized: dict[Any, bool] = {}  # by the shapes of the batch
        self._seen: set[Any] = set()  # shapes of batches that passed the checks of the first batch

    def __call__(self, inputs: Any, targets: Any = None) -> DenseRows:
        """The rows of one batch; its tensors hold samples along the first dimension."""
        check_same_parameters(self.model, self.layout)
        batch = detached((inputs, targets))
        size = slice_size(batch, self.n_rows)
        n_samples = size * self.n_rows
        terms = self._count_terms(batch, n_samples)
        counts = None if terms is None else terms.view(self.n_rows, -1).sum(1)
        self._check_reduction(batch, self.n_rows)
        rows = self._rows = row_buffer(self._rows, self.n_rows, self.layout)
        key = tuple(tensor.shape for tensor in tensors_of(batch))
        found = self._vectorized(batch, rows, key) if self._is_vectorized(batch, key) else None
        if found is None:
            parts = (picked(batch, slice(at, at + size)) for at in range(0, n_samples, size))
            losses = self._one_by_one(parts, rows, counts, key)
        else:
            losses, medians = found
            self._check_losses(losses, counts)
            for buffer, median in medians:
                buffer.copy_(median)
        self._seen.add(key)
        self._finish(losses, n_samples, self.n_rows, counts)
        return self._rows_of(rows)

    def slice_of(self, row: int, inputs: Any, targets: Any = None) -> tuple[tuple[Any, Any], int]:
        """The inputs and targets of the slice of one row, and its number of samples."""
        size = slice_size((inputs, targets), self.n_rows)
        own = picked((inputs, targets), slice(row * size, (row + 1) * size))
        return own, size

    def is_vectorized(self, inputs: Any, targets: Any = None) -> bool:
        """Whether the slices of such a batch are computed at once, as far as is known."""
        batch = detached((inputs, targets))
        return self._is_vectorized(batch, tuple(tensor.shape for tensor in tensors_of(batch)))

    def _is_vectorized(self, batch: Any, key: Any) -> bool:
        if self.vectorized is not None:
            if self.vectorized and key not in self._seen:
                first = picked(batch, slice(0, slice_size(batch, self.n_rows)))
                with without_side_effects(self.model):
                    check_differentiable(self._objective.total(first))
            return self.vectorized
        if key not in self._pays_vectorized:
            self._pays_vectorized[key] = pays_vectorized(
                self._objective, self.layout, batch, self.n_rows
            )
        return self._pays_vectorized[key]

    def _vectorized(
        self, batch: Any, rows: Tensor, key: Any
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]] | None:
        """Losses and buffers of all slices at once; None if that was only tried, and failed."""
        batch = map_tensors(lambda tensor: torch.unflatten(tensor, 0, (self.n_rows, -1)), batch)
        if self.vectorized or key in self._seen:
            return self._all_at_once(batch, rows, chunk=self.n_rows)
        state, found = random_state(rows.device), None
        with suppress(Exception):
            found = self._all_at_once(batch, rows, chunk=self.n_rows)
        if found is None or holds_vmap_tensors(self.model):
            set_random_state(rows.device, state)
            self._pays_vectorized[key] = False
            return None
        return found

    def _one_by_one(
        self, parts: Iterable[Any], rows: Tensor, counts: Tensor | None, key: Any
    ) -> Tensor:
        """Write the rows by one backward pass each; returns the losses [n]."""
        factor = self._objective.factor(len(rows)) * loss_scale(self._scaler, rows)
        losses: list[Tensor] = []
        buffers = Buffers(self.model)
        try:
            with gradient_writer(self.layout) as write:
                for part, row in zip(parts, rows, strict=True):
                    with torch.enable_grad():
                        loss = self._objective.total(part)
                        if not losses and key not in self._seen:
                            check_differentiable(loss)
                        write(loss * factor, row)
                    losses.append(loss.detach())
                    buffers.end_row()
            self._check_losses(torch.stack(losses), counts)
        except BaseException:
            buffers.restore()
            raise
        buffers.combine()
        return torch.stack(losses)


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
