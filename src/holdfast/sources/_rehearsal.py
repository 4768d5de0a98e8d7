"""Forward passes that leave no trace."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from holdfast.sources._buffers import Buffers


@contextmanager
def rehearsal(model: nn.Module) -> Iterator[None]:
    """Passes within the context have a graph; random numbers and the model's buffers stand afterwards as before."""
    device = next(model.parameters()).device
    buffers = Buffers(model)
    buffers.begin()
    try:
        with (
            torch.random.fork_rng(
                [] if device.type == "cpu" else [device], device_type=device.type
            ),
            torch.enable_grad(),
        ):
            yield
    finally:
        buffers.restore()
