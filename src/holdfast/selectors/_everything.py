from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor

from holdfast.geometry import Block, Tiling
from holdfast.selectors._selector import Selector, selectors


@final
@selectors.register
@dataclass(frozen=True, kw_only=True)
class Everything(Selector):
    """All columns at each step.

    Example:
        >>> tiling = Everything().tiling((3, 2))
        >>> len(Everything().select(tiling, torch.ones(2), step=0, generator=torch.Generator()))
        5
    """

    name = "everything"
    takes_everything = True

    def tiling(self, sections: tuple[int, ...]) -> Tiling:
        return Tiling(sections, None)

    def select(self, tiling: Tiling, norms: Tensor, *, step: int, generator: Generator) -> Block:
        return Block(tiling, torch.arange(tiling.n_tiles))
