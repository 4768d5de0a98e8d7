"""Delivery: a block of what is owed now, the rest later."""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from holdfast.geometry import Block, length
from holdfast.selectors import Selector


@dataclass(frozen=True, eq=False)
class Delivered:
    """A vector in two parts that add up to it, bit for bit.

    Attributes:
        now: [d] the vector on the block, zero elsewhere.
        later: [d] the vector off the block, zero on it.
        block: the columns that are delivered now.
        residual: the share of the squared norm that is left for later.
    """

    now: Tensor
    later: Tensor
    block: Block
    residual: float


def deliver(
    total: Tensor,
    selector: Selector,
    sections: tuple[int, ...],
    *,
    step: int,
    generator: Generator,
) -> Delivered:
    """Split the vector `total` [d], which is overwritten, by the block that `selector` chooses.

    Args:
        total: what is owed. Its storage becomes `later`.
        selector: chooses the block by the norms of the vector's tiles.
        sections: numbers of columns per parameter.
        step: the number of blocks chosen before.
        generator: source of random numbers, on the CPU.
    """
    tiling = selector.tiling(sections)
    block = selector.select(tiling, tiling.norms(total), step=step, generator=generator)
    now = torch.zeros_like(total)
    if block.is_whole:
        # The two parts trade places, which costs no copy.
        return Delivered(total, now, block, 0.0)
    tiles = block.tiles.to(total.device)
    chosen = tiling.take(total, tiles)
    tiling.put(now, tiles, chosen)
    tiling.clear(total, tiles)
    left = length(total)
    owed = math.hypot(left, length(chosen))
    return Delivered(now, total, block, (left / owed) ** 2 if owed > 0 else 0.0)
