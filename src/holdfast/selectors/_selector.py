"""The base of all selectors: a choice among the tiles of the columns."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Generator, Tensor

from holdfast.checks import check_count, check_flag, check_fraction, check_one_of, failure
from holdfast.geometry import Block, Tiling
from holdfast.registry import Registry

Tile = int | Literal["parameter"] | None
"""Columns that are chosen together: a number, those of one parameter, or the default."""

WIDEST = 64
"""Columns that are gathered at the speed of memory (`python -m benchmarks granularity`)."""

ENOUGH_TILES = 1024
"""Models with fewer columns than this many tiles of the largest width get narrower tiles."""


class Selector(ABC):
    """Chooses the block of columns that a step moves.

    Selectors are immutable, and draw only from the generator of the call. They choose columns by
    tiles, contiguous and within one parameter, which can be gathered at the speed of memory.
    """

    name: ClassVar[str]
    """The short name, as in `"top-norm(fraction=0.1)"`."""

    takes_everything: ClassVar[bool] = False
    """Whether all columns are chosen, so that no norms are needed."""

    capped: bool = True
    """Whether norms over all rows shorten rows that are longer than the median row to it."""

    @abstractmethod
    def tiling(self, sections: tuple[int, ...]) -> Tiling:
        """The tiles to choose from, for parameters of these sizes."""

    @abstractmethod
    def select(self, tiling: Tiling, norms: Tensor, *, step: int, generator: Generator) -> Block:
        """Choose the block.

        Args:
            tiling: the tiles to choose from.
            norms: [n_tiles] norms of the tiles, of a vector or over all rows, up to a common
                factor.
            step: the number of blocks chosen before.
            generator: source of random numbers, on the CPU.
        """

    def threshold(self, vector: Tensor) -> float | None:
        """An estimate of the magnitude above which the right number of columns of a vector lies.

        For selectors that choose single columns by their magnitude; None if :meth:`select` must
        choose.
        """
        return None

    def is_right_number(self, n_found: int, n_columns: int) -> bool:
        """Whether so many columns above a threshold are about the right number."""
        return False


selectors: Registry[Selector] = Registry("selector")
"""Every selector by its short name: `selectors.parse("norm-sampling(fraction=0.1)")`."""


@dataclass(frozen=True, kw_only=True)
class TileSelector(Selector):
    """A selector that takes a fraction or a number of tiles.

    Args:
        fraction: the share of tiles, in (0, 1].
        count: the number of tiles; either this or `fraction` must be given.
        tile: columns of a tile, or "parameter" for whole parameters. None means 64, or less in
            models of less than 65,536 columns.
    """

    fraction: float | None = None
    count: int | None = None
    tile: Tile = None

    one_of: ClassVar[tuple[str, ...]] = ("fraction", "count")

    def __post_init__(self) -> None:
        check_one_of({"fraction": self.fraction, "count": self.count})
        if self.count is not None:
            check_count("count", self.count, at_least=1)
        if self.fraction is not None:
            check_fraction("fraction", self.fraction)
        check_flag("capped", self.capped)
        tile: object = self.tile
        if isinstance(tile, str) and tile != "parameter":
            raise failure("tile", "be a number of columns, 'parameter' or None", repr(tile))
        if tile is not None and tile != "parameter":
            check_count("tile", tile, at_least=1)

    def tiling(self, sections: tuple[int, ...]) -> Tiling:
        if self.tile == "parameter":
            return Tiling(sections, None)
        return Tiling(sections, _usual_width(sum(sections)) if self.tile is None else self.tile)

    def n_chosen(self, n_tiles: int) -> int:
        """The number of tiles chosen among `n_tiles`, at least one."""
        if self.count is not None:
            return min(self.count, n_tiles)
        assert self.fraction is not None
        return min(n_tiles, max(1, round(self.fraction * n_tiles)))


def _usual_width(d: int) -> int:
    """The largest power of two, up to the widest tile, that leaves enough tiles to choose from."""
    return min(WIDEST, 1 << max(0, (d // ENOUGH_TILES).bit_length() - 1))
