"""What every selector is: a choice among the tiles of the columns."""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import torch
from torch import Tensor

from holdfast.checks import check_count, check_flag, check_fraction, check_one_of, failure
from holdfast.geometry import Block, Tiling

Tile = int | Literal["parameter"] | None

WIDEST = 64
"""Columns of a tile that are gathered as fast as they can be read (`python -m benchmarks granularity`)."""

ENOUGH_TILES = 1024
"""A model of fewer columns than so many of the widest tiles gets narrower ones, so that there is always something to choose from."""


class Selector(ABC):
    """Chooses the block of columns that a step moves.

    Selectors are immutable, and draw from the generator they are handed. Columns are chosen by the tile: contiguous, within one
    parameter, so that they can be gathered at the speed of memory.
    """

    name: ClassVar[str]
    """The short name, as in `"top-norm(fraction=0.1)"`."""

    reaches_every_column: ClassVar[bool]
    """Whether every column that holds anything has a chance above zero: what a sketch of the rows needs."""

    takes_everything: ClassVar[bool] = False
    """Whether no choice is made, so that no scores are needed."""

    capped: bool = True
    """Whether rows longer than the median row count no more than that one in the scores."""

    @abstractmethod
    def tiling(self, sections: tuple[int, ...]) -> Tiling:
        """The tiles to choose from, for rows whose parameters have these sizes."""

    @abstractmethod
    def select(
        self, tiling: Tiling, scores: Tensor, *, step: int, generator: torch.Generator
    ) -> Block:
        """The block.

        Args:
            tiling: the tiles to choose from.
            scores: [n_tiles] squared norms of the tiles over all rows, up to a common factor (float64, CPU).
            step: how many blocks were chosen before.
            generator: source of random numbers, on the CPU.
        """


class TileSelector(Selector):
    """A selector that takes a share or a number of tiles.

    The dataclass that implements it has the fields `fraction`, `count` (one of the two is given) and `tile`.
    """

    fraction: float | None
    count: int | None
    tile: Tile

    def __post_init__(self) -> None:
        check_one_of("fraction", self.fraction, "count", self.count)
        if self.count is not None:
            check_count("count", self.count, at_least=1)
        if self.fraction is not None:
            check_fraction("fraction", self.fraction)
        check_flag("capped", self.capped)
        if isinstance(self.tile, str):
            if self.tile != "parameter":
                raise failure(
                    "tile", "be a number of columns, 'parameter' or None", repr(self.tile)
                )
        elif self.tile is not None:
            check_count("tile", self.tile, at_least=1)

    def tiling(self, sections: tuple[int, ...]) -> Tiling:
        if self.tile == "parameter":
            return Tiling(sections, None)
        return Tiling(
            sections, _usual_width(sum(sections)) if self.tile is None else int(self.tile)
        )

    def n_chosen(self, n_tiles: int) -> int:
        """How many of so many tiles are chosen: one at least."""
        if self.count is not None:
            return min(self.count, n_tiles)
        assert self.fraction is not None
        return min(n_tiles, max(1, round(self.fraction * n_tiles)))


def _usual_width(d: int) -> int:
    """The largest power of two, up to the widest tile, that leaves enough tiles to choose from."""
    return min(WIDEST, 1 << max(0, (d // ENOUGH_TILES).bit_length() - 1))
