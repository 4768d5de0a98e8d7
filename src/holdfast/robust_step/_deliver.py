"""Delivery: a block of a vector now, the rest later."""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from holdfast.geometry import Block, length
from holdfast.selectors import Selector


@dataclass(frozen=True, eq=False)
class Delivered:
    """A vector, split into two parts that add up to it bitwise.

    Attributes:
        now: [d] the vector on the block, zero elsewhere.
        later: [d] the vector off the block, zero on it; None if nothing is left.
        block: the columns that are delivered now.
        residual: the share of the squared norm that is left for later.
    """

    now: Tensor
    later: Tensor | None
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
        total: the vector. Its storage becomes one of the two parts.
        selector: chooses the block by the vector.
        sections: numbers of columns per parameter.
        step: the number of blocks chosen before.
        generator: source of random numbers, on the CPU.
    """
    tiling = selector.tiling(sections)
    threshold = selector.threshold(total)
    if threshold is not None:
        above = torch.nn.functional.hardshrink(total, threshold)
        # Magnitudes that are equal, or fall in step with the sample, need the exact choice.
        if selector.is_right_number(int(above.count_nonzero()), len(total)):
            later = total.sub_(above)  # exact: an entry is in one of the two
            block = Block(tiling, lambda: torch.nonzero(above)[:, 0].cpu())
            return Delivered(above, later, block, _share(later, above))
    block = selector.select(tiling, tiling.norms(total), step=step, generator=generator)
    if block.is_whole:
        return Delivered(total, None, block, 0.0)
    tiles = block.tiles.to(total.device)
    now, chosen = torch.zeros_like(total), tiling.take(total, tiles)
    tiling.put(now, tiles, chosen)
    tiling.clear(total, tiles)
    return Delivered(now, total, block, _share(total, chosen))


def _share(later: Tensor, now: Tensor) -> float:
    """The share of the squared norm of both parts that is in `later`."""
    left = length(later)
    owed = math.hypot(left, length(now))
    return (left / owed) ** 2 if owed > 0 else 0.0
