from typing import Any, final

import torch
from torch import Tensor, nn

from holdfast.checks import check_count, check_flag
from holdfast.geometry import DenseRows
from holdfast.sources._batch import detached, map_tensors, slices
from holdfast.sources._buffers import Buffers
from holdfast.sources._graph import check_differentiable
from holdfast.sources._objective import LossFunction, Reduction
from holdfast.sources._row_writer import RowWriter
from holdfast.sources._source import DenseSource, check_same_parameters, loss_scale, row_buffer


@final
class MicroBatches(DenseSource):
    r"""One row per slice of the batch: the batch is cut into `n_rows` slices of consecutive samples, each with its own backward pass.

    Row i is the gradient of the loss over slice i, scaled so that the mean of all rows is what `loss_fn(model(inputs), targets).backward()`
    would have written: with `reduction="mean"` the gradient of the slice's mean loss, with "sum" `n_rows` times that of its sum. (Dropout and
    BatchNorm aside: every row has its own noise and its own batch statistics. And what a loss normalises over a batch, such as class weights, it
    normalises over the slice.)

    Running statistics and other buffers begin the same for every row; what the rows make of them is combined by the coordinate
    median, and counts as one update. The loop costs about as much as ordinary passes over the slices. One bad sample spoils its row: a minority of
    bad *rows* is what robust rules survive.

    The rows stand in one buffer [n_rows, d], which the next call overwrites.

    Args:
        model: any module; its parameters share one dtype and one device.
        loss_fn: called as `loss_fn(model(inputs), targets)`, returns a scalar.
        n_rows: how many slices; must divide the number of samples.
        reduction: "mean" or "sum", what the loss does over samples; by default what `loss_fn.reduction` says, else "mean".
        vectorized: all slices at once by `torch.func.vmap`; pays for small models, where the loop is mostly overhead, and
            takes the memory of the whole batch.
        scaler: a gradient scaler, with float16 autocast: the loss is scaled, the rows are scaled back.

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
        """The rows of one batch; its tensors hold samples along their first dimension."""
        check_same_parameters(self.model, self.layout)
        inputs, targets = detached((inputs, targets))
        parts = slices((inputs, targets), self.n_rows)
        self._rows = row_buffer(self._rows, self.n_rows, self.layout)
        if self.vectorized:
            batch = map_tensors(
                lambda tensor: torch.unflatten(tensor, 0, (self.n_rows, -1)), (inputs, targets)
            )
            return self._all_at_once(batch, self._rows, chunk=self.n_rows)
        return self._one_by_one(parts, self._rows)

    def _one_by_one(self, parts: list[Any], rows: Tensor) -> DenseRows:
        scale = loss_scale(self._scaler, rows)
        factor = self._objective.factor(len(rows)) * scale
        losses: list[Tensor] = []
        buffers = Buffers(self.model)
        buffers.begin()
        try:
            with RowWriter(self.layout) as writer:
                for part, row in zip(parts, rows, strict=True):
                    with torch.enable_grad():
                        loss = self._objective.total(part)
                        if not losses:
                            check_differentiable(loss)
                        writer.write(loss * factor, row)
                    losses.append(loss.detach())
                    buffers.end_row()
            self._check(torch.stack(losses))
        except BaseException:
            buffers.restore()
            raise
        buffers.combine()
        return self._rows_of(rows, torch.stack(losses), scale)
