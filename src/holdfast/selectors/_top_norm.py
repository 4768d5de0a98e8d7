from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.geometry import Block, Tiling
from holdfast.selectors._selector import Tile, TileSelector


@final
@dataclass(frozen=True, kw_only=True)
class TopNorm(TileSelector):
    r"""The k tiles of largest norm over all rows: the Gauss-Southwell rule.

    Deterministic, so an attacker knows beforehand which columns nobody will look at. Of equal norms, the first.

    Args:
        fraction: the share of tiles, in (0, 1].
        count: their number, instead.
        tile: columns of a tile; "parameter" for whole parameters; None for 64, and fewer in models of less than 65,536 columns.
        capped: whether a row longer than the median row counts no more than that one.

    Reference: Nutini et al., *Coordinate Descent Converges Faster with the Gauss-Southwell Rule Than Random Selection* (ICML 2015),
    equation 3, over rows.

    Example:
        >>> selector = TopNorm(count=2, tile=1)
        >>> scores = torch.tensor([3.0, 9.0, 1.0, 4.0], dtype=torch.float64)
        >>> selector.select(selector.tiling((4,)), scores, step=0, generator=torch.Generator()).columns
        tensor([1, 3])
    """

    fraction: float | None = None
    count: int | None = None
    tile: Tile = None
    capped: bool = True

    name = "top-norm"
    reaches_every_column = False

    def select(
        self, tiling: Tiling, scores: Tensor, *, step: int, generator: torch.Generator
    ) -> Block:
        k = self.n_chosen(tiling.n_tiles)
        tiles = scores.sort(descending=True, stable=True).indices[:k].sort().values
        return Block(tiling, tiles, torch.ones(k, dtype=torch.float64))
