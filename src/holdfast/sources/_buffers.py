"""The buffers of a model, such as running statistics, over the rows of one step."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from holdfast.geometry import median_of_rows


class Buffers:
    """Gives every row the current buffers, and combines the results by coordinate median.

    An average would have breakdown point zero: one bad batch could move the running statistics of a
    BatchNorm layer anywhere. Integers take the lower median; flags are not restored or combined.
    Forward passes may change buffers in place or replace them.
    """

    @torch.no_grad()
    def __init__(self, model: nn.Module) -> None:
        self._places = [
            (module, name)
            for module in model.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None and buffer.dtype != torch.bool
        ]
        self._tensors = [_current(*place) for place in self._places]
        self._start = [tensor.detach().clone() for tensor in self._tensors]
        self._ends: dict[int, list[Tensor]] = {}
        self._n_rows = 0

    @torch.no_grad()
    def end_row(self) -> None:
        """Store the buffers that the row changed, and restore the initial state."""
        self._n_rows += 1
        for i, place in enumerate(self._places):
            # BatchNorm writes without counting the tensor's version, so values are compared.
            if not torch.equal(_current(*place), self._start[i]):
                self._ends.setdefault(i, []).append(_current(*place).detach().clone())
                self._write(i, self._start[i])

    @torch.no_grad()
    def restore(self) -> None:
        """Restore the initial state."""
        for i, place in enumerate(self._places):
            if not torch.equal(_current(*place), self._start[i]):
                self._write(i, self._start[i])

    @torch.no_grad()
    def combine(self) -> None:
        """Write the median over the rows to every buffer that a row changed."""
        for i, ends in self._ends.items():
            unchanged = [self._start[i]] * (self._n_rows - len(ends))
            self._write(i, median_of_rows(torch.stack([*ends, *unchanged]), self._start[i]))

    def _write(self, i: int, value: Tensor) -> None:
        # Back into the original tensor: a forward pass may have put another one in its place.
        module, name = self._places[i]
        module._buffers[name] = self._tensors[i].copy_(value)


def _current(module: nn.Module, name: str) -> Tensor:
    buffer = module._buffers[name]
    assert buffer is not None
    return buffer


@contextmanager
def without_side_effects(model: nn.Module) -> Iterator[None]:
    """Forward passes with a graph that leave random state and buffers as they were."""
    device = next(model.parameters()).device
    devices = [] if device.type == "cpu" else [device]
    buffers = Buffers(model)
    try:
        with torch.random.fork_rng(devices, device_type=device.type), torch.enable_grad():
            yield
    finally:
        buffers.restore()
