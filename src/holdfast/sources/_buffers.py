"""A model's buffers, such as running statistics, over the rows of one step."""

import torch
from torch import Tensor, nn

from holdfast.geometry import median, working_dtype


class Buffers:
    """Lets every row begin with the same buffers, and combines what the rows made of them by the coordinate median.

    An average would be a second door with breakdown point zero: one bad batch could move the running statistics of a
    BatchNorm layer anywhere. Integers take the lower median; flags are left as they are. Buffers may be changed in place or replaced.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._places: list[tuple[nn.Module, str]] = []
        self._tensors: list[Tensor] = []
        self._start: list[Tensor] = []
        self._ends: dict[int, list[Tensor]] = {}
        self._n_rows = 0

    @torch.no_grad()
    def begin(self) -> None:
        """Remember the state that all rows begin with."""
        self._places = buffer_places(self._model)
        self._tensors = [_held(module, name) for module, name in self._places]
        self._start = [tensor.detach().clone() for tensor in self._tensors]
        self._ends, self._n_rows = {}, 0

    @torch.no_grad()
    def end_row(self) -> None:
        """Remember what the row made of the buffers, and put the start back."""
        self._n_rows += 1
        for i, (module, name) in enumerate(self._places):
            # BatchNorm writes without counting the tensor's version, so values are compared.
            if not torch.equal(_held(module, name), self._start[i]):
                self._ends.setdefault(i, []).append(_held(module, name).detach().clone())
                self._write(i, self._start[i])

    @torch.no_grad()
    def restore(self) -> None:
        """Put the start back, as if no row had been."""
        for i, (module, name) in enumerate(self._places):
            if not torch.equal(_held(module, name), self._start[i]):
                self._write(i, self._start[i])

    @torch.no_grad()
    def combine(self) -> None:
        """Write the median over the rows into every buffer that a row changed."""
        for i, ends in self._ends.items():
            unchanged = [self._start[i]] * (self._n_rows - len(ends))
            self._write(i, median_of_rows(torch.stack([*ends, *unchanged]), self._start[i]))

    def _write(self, i: int, value: Tensor) -> None:
        module, name = self._places[i]
        module._buffers[name] = self._tensors[i].copy_(value)


def buffer_places(model: nn.Module) -> list[tuple[nn.Module, str]]:
    """The module and the name of every buffer that is not a flag."""
    return [
        (module, name)
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None and buffer.dtype != torch.bool
    ]


def _held(module: nn.Module, name: str) -> Tensor:
    buffer = module._buffers[name]
    assert buffer is not None
    return buffer


def median_of_rows(values: Tensor, start: Tensor) -> Tensor:
    """The coordinate median of `values` [n, ...] over the rows; `start` [...] where most of them are not finite."""
    if not values.is_floating_point():
        return values.sort(0).values[(len(values) - 1) // 2]
    finite = values[torch.isfinite(values.reshape(len(values), -1)).all(1)].to(
        working_dtype(values.dtype)
    )
    return median(len(finite))(list(finite)).to(start) if 2 * len(finite) > len(values) else start
