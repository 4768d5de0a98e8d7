from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor

from holdfast.geometry import Block, Tiling
from holdfast.selectors._selector import TileSelector, selectors


@final
@selectors.register
@dataclass(frozen=True, kw_only=True)
class Uniform(TileSelector):
    r"""k tiles drawn without replacement, each with the same probability.

    Contracts exactly as much as the bound of the paper's Lemma 1:
    :math:`E \|C_k(A) - A\|^2 = (1 - k/m) \|A\|^2` with m tiles in all. See :class:`TileSelector`
    for the arguments.

    Example:
        >>> selector, generator = Uniform(count=2, tile=1), torch.Generator().manual_seed(0)
        >>> tiling = selector.tiling((8,))
        >>> block = selector.select(tiling, torch.ones(8), step=0, generator=generator)
        >>> len(block), block.probabilities.tolist()
        (2, [0.25, 0.25])
    """

    name = "uniform"

    def select(self, tiling: Tiling, norms: Tensor, *, step: int, generator: Generator) -> Block:
        k = self.n_chosen(tiling.n_tiles)
        tiles = torch.randperm(tiling.n_tiles, generator=generator)[:k].sort().values
        return Block(tiling, tiles, torch.full((k,), k / tiling.n_tiles, dtype=torch.float64))
