from typing import Any, final

import torch
from torch import Tensor, nn

from holdfast.checks import check_count
from holdfast.geometry import DenseRows
from holdfast.sources._batch import batch_size, map_tensors, tensors_of
from holdfast.sources._mixing import check_samples_apart
from holdfast.sources._objective import LossFunction, Reduction
from holdfast.sources._rehearsal import rehearsal
from holdfast.sources._source import DenseSource, check_same_parameters, row_buffer


@final
class PerSample(DenseSource):
    r"""One row per sample of the batch, by `torch.func`.

    Row i is the gradient of sample i's own loss, scaled so that the mean of all rows is what `loss_fn(model(inputs), targets).backward()` would have
    written: :math:`\nabla \ell_i` with `reduction="mean"`, n times that with "sum". Then bad *samples* are what a robust rule survives. The loss
    is called on batches of one sample, so what it normalises over a batch (class weights, ignored labels) it normalises over that sample.

    The rows [n, d] take the memory of n models. :class:`LayerGrams` gives rules in Gram space the same rows without the matrix.
    BatchNorm in training mode mixes samples and is refused; a BatchNorm layer in evaluation mode is fine.

    The rows stand in one buffer, which the next call overwrites.

    Args:
        model: a module that works under `torch.func.vmap`; its parameters share one dtype and one device.
        loss_fn: called as `loss_fn(model(inputs), targets)`, returns a scalar.
        reduction: "mean" or "sum", what the loss does over samples; by default what `loss_fn.reduction` says, else "mean".
        budget: bytes that the passes may take beyond the rows: samples are treated in chunks of that size, but one at least.
        scaler: a gradient scaler, with float16 autocast: the loss is scaled, the rows are scaled back.

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
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        super().__init__(model, loss_fn, reduction, scaler)
        check_count("budget", budget, at_least=1)
        self.budget = budget
        self._rows: Tensor | None = None
        self._known_bytes: dict[tuple[torch.Size, ...], int] = {}

    def __call__(self, inputs: Any, targets: Any = None) -> DenseRows:
        check_samples_apart(self.model)
        check_same_parameters(self.model, self.layout)
        n = batch_size((inputs, targets))
        self._rows = row_buffer(self._rows, n, self.layout)
        batch = map_tensors(lambda tensor: tensor.detach().unsqueeze(1), (inputs, targets))
        return self._all_at_once(
            batch, self._rows, chunk=min(n, max(1, self.budget // self._bytes_of_one(batch)))
        )

    def _bytes_of_one(self, batch: Any) -> int:
        """What the passes of one sample keep: its gradient twice, and what autograd saves of its forward pass."""
        one = map_tensors(lambda tensor: tensor[0], batch)
        key = tuple(tensor.shape for tensor in tensors_of(one))
        if key not in self._known_bytes:
            gradient = self.layout.d * self.layout.parameters[0].element_size()
            self._known_bytes[key] = 2 * gradient + self._saved_bytes(one)
        return self._known_bytes[key]

    def _saved_bytes(self, sample: Any) -> int:
        """Bytes that autograd saves of a forward pass."""
        saved: dict[int, int] = {}

        def note(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            saved[storage.data_ptr()] = storage.nbytes()
            return tensor

        with (
            rehearsal(self.model),
            torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor),
        ):
            self._objective.total(sample)
        own = {parameter.untyped_storage().data_ptr() for parameter in self.model.parameters()}
        return sum(size for pointer, size in saved.items() if pointer not in own)
