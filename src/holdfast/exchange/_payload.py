"""The values of a block as they travel from a worker to the others."""

from dataclasses import dataclass
from typing import Literal, final, get_args

import torch
from torch import Tensor

from holdfast.checks import failure
from holdfast.geometry import Block

Wire = Literal["float32", "bfloat16", "int8"]
"""How a value travels: in 4, 2 or 1 byte."""

LEVELS = 127
"""An entry of int8 is at most this large."""


@final
@dataclass(frozen=True, eq=False)
class Payload:
    """The values of one worker on a block.

    Attributes:
        values: [k] the values, or for int8 whole multiples of the scale of their tile.
        scales: [t] the scale of each tile of the block (float32) for int8; None otherwise.
    """

    values: Tensor
    scales: Tensor | None = None

    @property
    def n_bytes(self) -> int:
        """The number of bytes that travel."""
        parts = [self.values] if self.scales is None else [self.values, self.scales]
        return sum(part.numel() * part.element_size() for part in parts)

    def decoded(self, block: Block, dtype: torch.dtype) -> Tensor:
        """[k] the numbers that were sent."""
        if self.scales is None:
            return self.values.to(dtype)
        tiles = block.tiles.to(self.scales.device)
        return self.values.to(dtype) * block.tiling.expand(self.scales.to(dtype), tiles)


def check_wire(wire: object) -> None:
    """Check for the name of a way to send values."""
    if wire not in get_args(Wire):
        raise failure("wire", "be 'float32', 'bfloat16' or 'int8'", repr(wire))


def encode(values: Tensor, block: Block, wire: Wire) -> Payload:
    """The values [k] on a block, rounded as `wire` says."""
    if wire == "int8":
        tiles, tiling = block.tiles.to(values.device), block.tiling
        scales = tiling.magnitudes(values, tiles).float() / LEVELS
        steps = tiling.expand(scales.to(values), tiles)
        # A tile of zeros has no scale; its quotients are NaN, which are not to be cast.
        quotients = (values / steps).round_().nan_to_num_(0.0).clamp_(-LEVELS, LEVELS)
        return Payload(quotients.to(torch.int8), scales)
    if wire == "bfloat16":
        return Payload(values.to(torch.bfloat16))
    # Wider parameters are sent as they are.
    return Payload(values if values.dtype is torch.float64 else values.float())
