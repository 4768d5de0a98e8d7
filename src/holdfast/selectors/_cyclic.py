from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor

from holdfast.geometry import Block, Tiling
from holdfast.selectors._selector import TileSelector, selectors


@final
@selectors.register
@dataclass(frozen=True, kw_only=True)
class Cyclic(TileSelector):
    """The next k tiles at each step, starting over after the last tile: the Gauss-Seidel rule.

    The last block of a round may be smaller. See :class:`TileSelector` for the arguments.

    Example:
        >>> selector, generator = Cyclic(count=2, tile=1), torch.Generator()
        >>> tiling, ones = selector.tiling((5,)), torch.ones(5)
        >>> blocks = [selector.select(tiling, ones, step=t, generator=generator) for t in range(4)]
        >>> [block.columns.tolist() for block in blocks]
        [[0, 1], [2, 3], [4], [0, 1]]
    """

    name = "cyclic"

    def select(self, tiling: Tiling, norms: Tensor, *, step: int, generator: Generator) -> Block:
        k = self.n_chosen(tiling.n_tiles)
        start = step * k % (-(-tiling.n_tiles // k) * k)
        tiles = torch.arange(start, min(start + k, tiling.n_tiles))
        return Block(tiling, tiles)
