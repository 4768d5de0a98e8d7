from dataclasses import dataclass
from functools import cached_property
from typing import final

from torch import Tensor

from holdfast.geometry._tiling import Tiling


@final
@dataclass(frozen=True, eq=False)
class Block:
    """The columns that a step moves, and how likely each of them was.

    Attributes:
        tiling: how the columns are cut into tiles.
        tiles: [t] numbers of the chosen tiles, increasing, on the CPU.
        probabilities: [t] the chance that each of these tiles had of being chosen (float64, CPU).
    """

    tiling: Tiling
    tiles: Tensor
    probabilities: Tensor

    @property
    def is_whole(self) -> bool:
        """Whether every column is in the block."""
        return len(self.tiles) == self.tiling.n_tiles

    @cached_property
    def columns(self) -> Tensor:
        """[k] the chosen columns, increasing."""
        return self.tiling.columns(self.tiles)

    @cached_property
    def column_probabilities(self) -> Tensor:
        """[k] the chance that each of these columns had of being chosen."""
        return self.tiling.expand(self.probabilities, self.tiles)

    def __len__(self) -> int:
        """The number of chosen columns, k."""
        return self.tiling.n_columns(self.tiles)
