"""A model's buffers, such as running statistics, over the rows of one step."""

import torch
from torch import Tensor, nn

from holdfast.aggregators import CoordinateMedian
from holdfast.errors import NonFiniteRowsError
from holdfast.geometry import working_dtype


class Buffers:
    """Lets every row begin with the same buffers, and combines what the rows made of them by the coordinate median.

    An average would be a second door with breakdown point zero: one bad batch could move the running statistics of a
    BatchNorm layer anywhere. Integers take the lower median; flags are left as they are.
    """

    def __init__(self, model: nn.Module) -> None:
        self._buffers = [buffer for buffer in model.buffers() if buffer.dtype != torch.bool]
        self._start: list[Tensor] = []
        self._ends: dict[int, list[Tensor]] = {}
        self._n_rows = 0

    @torch.no_grad()
    def begin(self) -> None:
        """Remember the state that all rows begin with."""
        self._start = [buffer.detach().clone() for buffer in self._buffers]
        self._ends, self._n_rows = {}, 0

    @torch.no_grad()
    def end_row(self) -> None:
        """Remember what the row made of the buffers, and put the start back."""
        self._n_rows += 1
        for i, (buffer, start) in enumerate(zip(self._buffers, self._start, strict=True)):
            # BatchNorm writes without counting the tensor's version, so values are compared.
            if not torch.equal(buffer, start):
                self._ends.setdefault(i, []).append(buffer.detach().clone())
                buffer.copy_(start)

    @torch.no_grad()
    def restore(self) -> None:
        """Put the start back, as if no row had been."""
        for buffer, start in zip(self._buffers, self._start, strict=True):
            buffer.copy_(start)

    @torch.no_grad()
    def combine(self) -> None:
        """Write the median over the rows into every buffer that a row changed."""
        for i, ends in self._ends.items():
            unchanged = [self._start[i]] * (self._n_rows - len(ends))
            self._buffers[i].copy_(median_of_rows(torch.stack([*ends, *unchanged]), self._start[i]))


def median_of_rows(values: Tensor, start: Tensor) -> Tensor:
    """The coordinate median of `values` [n, ...] over the rows; `start` [...] where most of them are not finite."""
    rows = values.reshape(len(values), -1)
    if rows.shape[1] == 0:
        return start
    if not rows.is_floating_point():
        return rows.sort(0).values[(len(rows) - 1) // 2].view_as(start)
    try:
        return CoordinateMedian()(rows.to(working_dtype(rows.dtype))).view_as(start).to(start)
    except NonFiniteRowsError:
        return start
