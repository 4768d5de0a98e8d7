from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.geometry import Block, Tiling
from holdfast.selectors._selector import Tile, TileSelector


@final
@dataclass(frozen=True, kw_only=True)
class Cyclic(TileSelector):
    """The next k tiles at every step, and from the left again after the last: the Gauss-Seidel rule.

    The last block of a round may be smaller.

    Args:
        fraction: the share of tiles, in (0, 1].
        count: their number, instead.
        tile: columns of a tile; "parameter" for whole parameters; None for 64, and fewer in models of less than 65,536 columns.

    Example:
        >>> selector, tiling = Cyclic(count=2, tile=1), Cyclic(count=2, tile=1).tiling((5,))
        >>> [selector.select(tiling, torch.ones(5), step=t, generator=torch.Generator()).columns.tolist() for t in range(4)]
        [[0, 1], [2, 3], [4], [0, 1]]
    """

    fraction: float | None = None
    count: int | None = None
    tile: Tile = None

    name = "cyclic"
    reaches_every_column = False

    def select(
        self, tiling: Tiling, scores: Tensor, *, step: int, generator: torch.Generator
    ) -> Block:
        k = self.n_chosen(tiling.n_tiles)
        start = step * k % (-(-tiling.n_tiles // k) * k)
        tiles = torch.arange(start, min(start + k, tiling.n_tiles))
        return Block(tiling, tiles, torch.ones(len(tiles), dtype=torch.float64))
