"""The values of a block as they travel from a worker to the others."""

from dataclasses import dataclass
from typing import Literal, final, get_args

import torch
from torch import Tensor

from holdfast.checks import failure
from holdfast.geometry import Block, Tiling

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

    def packed(self, n_bytes: int) -> Tensor:
        """[n_bytes] the payload as bytes (uint8), with zeros behind it."""
        parts = [self.values] if self.scales is None else [self.scales, self.values]
        message = torch.zeros(n_bytes, dtype=torch.uint8, device=self.values.device)
        content = [part.contiguous().view(torch.uint8) for part in parts]
        torch.cat(content, out=message[: self.n_bytes])
        return message

    @classmethod
    def unpacked(cls, message: Tensor, block: Block, dtype: torch.dtype) -> "Payload":
        """The payload of values of this dtype on a block, from the bytes of :meth:`packed`."""
        n_scales = len(block.tiles) if dtype is torch.int8 else 0
        start, stop = 4 * n_scales, 4 * n_scales + dtype.itemsize * len(block)
        scales = message[:start].view(torch.float32) if n_scales else None
        return cls(message[start:stop].view(dtype), scales)

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


def message_size(tiling: Tiling, n_tiles: int, dtype: torch.dtype) -> int:
    """Bytes for the values of any `n_tiles` of the tiles; whole numbers of 8 bytes.

    The size does not depend on the block, so ranks that disagree about it can still communicate.
    """
    n_scales = n_tiles if dtype is torch.int8 else 0
    return -(-(4 * n_scales + dtype.itemsize * tiling.most_columns(n_tiles)) // 8) * 8


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
