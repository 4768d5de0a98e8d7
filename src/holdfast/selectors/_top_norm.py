from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor

from holdfast.geometry import Block, Tiling
from holdfast.selectors._selector import TileSelector


@final
@dataclass(frozen=True, kw_only=True)
class TopNorm(TileSelector):
    r"""The k tiles of largest norm over all rows: the Gauss-Southwell rule.

    Deterministic, so an attacker can predict which columns are not chosen. Of equal norms it takes
    the first. With `capped`, a row longer than the median row counts as that one. See
    :class:`TileSelector` for the other arguments.

    Reference: Nutini et al., *Coordinate Descent Converges Faster with the Gauss-Southwell Rule
    Than Random Selection* (ICML 2015), equation 3, over rows.

    Example:
        >>> selector, tiling = TopNorm(count=2, tile=1), Tiling((4,), 1)
        >>> scores = torch.tensor([3.0, 9.0, 1.0, 4.0], dtype=torch.float64)
        >>> selector.select(tiling, scores, step=0, generator=torch.Generator()).columns
        tensor([1, 3])
    """

    capped: bool = True

    name = "top-norm"
    reaches_every_column = False

    def select(self, tiling: Tiling, scores: Tensor, *, step: int, generator: Generator) -> Block:
        k = self.n_chosen(tiling.n_tiles)
        tiles = scores.sort(descending=True, stable=True).indices[:k].sort().values
        return Block(tiling, tiles, torch.ones(k, dtype=torch.float64))
