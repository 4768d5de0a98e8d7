from typing import Any, final

import torch
from torch import nn

from holdfast.checks import check_count
from holdfast.geometry import DenseRows
from holdfast.sources._batch_loss import (
    LossFunction,
    Reduction,
    batch_size,
    check_independent_samples,
    detached,
    map_tensors,
    tensors_of,
)
from holdfast.sources._buffers import without_side_effects
from holdfast.sources._probe import saved_bytes
from holdfast.sources._source import (
    DenseSource,
    TermsFunction,
    check_same_parameters,
    row_buffer,
)


@final
class PerSample(DenseSource):
    r"""One row per sample of the batch, by `torch.func`.

    Row i is the gradient of the loss of sample i, scaled so that the mean of all rows is the
    gradient of `loss_fn(model(inputs), targets)`: :math:`\nabla \ell_i` with `reduction="mean"`, n
    times that with "sum". Robust rules then tolerate a minority of bad *samples*. Normalization
    over a batch (class weights, ignored labels) is over the single sample.

    The rows [n, d] take the memory of n models. :class:`LayerGrams` provides the same rows to Gram
    rules without the matrix. BatchNorm is supported in evaluation mode only, because in training
    mode it mixes samples.

    The rows share one buffer, which the next call overwrites.

    Args:
        model: a module that works under `torch.func.vmap`, with parameters of one dtype and device.
        loss_fn: called as `loss_fn(model(inputs), targets)`; returns a scalar.
        reduction: "mean" or "sum", how the loss combines samples; by default `loss_fn.reduction`
            if it exists, else "mean".
        budget: bytes that the passes may take in addition to the rows; sets the number of samples
            that are computed at a time, at least one.
        terms: a function of inputs and targets that returns the numbers of terms [n] which the
            losses of the samples average, such as tokens without padding; sets `row_weights`.
        scaler: a gradient scaler, for float16 autocast: the loss is scaled, the rows are unscaled.

    Example:
        >>> model = nn.Linear(3, 1)
        >>> source = PerSample(model, nn.MSELoss())
        >>> rows = source(torch.randn(5, 3), torch.randn(5, 1))
        >>> rows.n, rows.d
        (5, 4)
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction,
        *,
        reduction: Reduction | None = None,
        budget: int = 2**29,
        terms: TermsFunction | None = None,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        super().__init__(model, loss_fn, reduction, terms, scaler)
        check_count("budget", budget, at_least=1)
        self.budget = budget
        self._known_bytes: dict[tuple[torch.Size, ...], int] = {}

    def __call__(self, inputs: Any, targets: Any = None) -> DenseRows:
        check_independent_samples(self.model)
        check_same_parameters(self.model, self.layout)
        batch = detached((inputs, targets))
        n = batch_size(batch)
        counts = self._count_terms(batch, n)
        self._check_reduction(batch, n)
        self._rows = row_buffer(self._rows, n, self.layout)
        ones = map_tensors(lambda tensor: tensor.unsqueeze(1), batch)
        chunk = min(n, max(1, self.budget // self._bytes_per_sample(batch)))
        losses, medians = self._all_at_once(ones, self._rows, chunk=chunk)
        self._check_losses(losses, counts)
        for buffer, median in medians:
            buffer.copy_(median)
        self._finish(losses, n, n, counts)
        return self._rows_of(self._rows)

    def _bytes_per_sample(self, batch: Any) -> int:
        """The gradient of a sample twice, and the tensors that its forward pass saves."""
        key = tuple(tensor.shape[1:] for tensor in tensors_of(batch))
        if key not in self._known_bytes:
            with without_side_effects(self.model):
                activations = saved_bytes(self._objective, batch)
            gradient = self.layout.d * self.layout.parameters[0].element_size()
            self._known_bytes[key] = 2 * gradient + activations
        return self._known_bytes[key]
