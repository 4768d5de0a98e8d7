"""Columns cut into tiles: contiguous, cheap to gather, each within one parameter."""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import final

import torch
from torch import Tensor

from holdfast.checks import check_count


@dataclass(frozen=True)
class Piece:
    """Adjacent tiles of equal width."""

    start: int  # the first column
    first: int  # the number of the first tile
    n_tiles: int
    width: int  # columns of each tile

    @property
    def stop(self) -> int:
        """The column after the last tile."""
        return self.start + self.n_tiles * self.width

    def of(self, tensor: Tensor) -> Tensor:
        """The piece of a tensor [..., d] as a view [..., n_tiles, width]."""
        return tensor[..., self.start : self.stop].unfold(-1, self.width, self.width)

    def cut(self, n_columns: int) -> Iterator["Piece"]:
        """The piece in parts of about `n_columns`: groups of tiles, or parts of one wide tile."""
        step = max(1, n_columns // self.width)
        for tile in range(0, self.n_tiles, step):
            start, first = self.start + tile * self.width, self.first + tile
            if self.width <= n_columns:
                yield Piece(start, first, min(step, self.n_tiles - tile), self.width)
                continue
            for offset in range(0, self.width, n_columns):
                yield Piece(start + offset, first, 1, min(n_columns, self.width - offset))


@final
@dataclass(frozen=True)
class Tiling:
    """Columns in `sections` of these sizes (one per parameter), each cut into tiles of `width`.

    The last tile of a section may be narrower; a width of None leaves sections whole. Tiles are
    numbered from left to right.

    Example:
        >>> tiling = Tiling((5, 2), width=2)
        >>> tiling.n_tiles, tiling.columns(torch.tensor([1, 2])).tolist()
        (4, [2, 3, 4])
    """

    sections: tuple[int, ...]
    width: int | None

    def __post_init__(self) -> None:
        if self.width is not None:
            check_count("width", self.width, at_least=1)

    @property
    def d(self) -> int:
        """The number of columns."""
        return sum(self.sections)

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """Runs of equally wide tiles: at most two per section."""
        pieces, start, first = [], 0, 0
        for size in self.sections:
            width = size if self.width is None else min(size, self.width)
            for n_tiles, tile in ((size // width, width), (1, size % width)) if size else ():
                if tile:
                    pieces.append(Piece(start, first, n_tiles, tile))
                    start, first = start + n_tiles * tile, first + n_tiles
        return tuple(pieces)

    @property
    def n_tiles(self) -> int:
        """The number of tiles."""
        return self.pieces[-1].first + self.pieces[-1].n_tiles

    def tile_at(self, column: int) -> int:
        """The number of the tile that holds this column."""
        at = bisect_right(self.pieces, column, key=lambda piece: piece.start) - 1
        piece = self.pieces[at]
        return piece.first + (column - piece.start) // piece.width

    def groups(self, n_columns: int) -> Iterator[Piece]:
        """The pieces in groups of tiles with about `n_columns` in all; no tile is cut."""
        for piece in self.pieces:
            step = max(1, n_columns // piece.width)
            for tile in range(0, piece.n_tiles, step):
                start, first = piece.start + tile * piece.width, piece.first + tile
                yield Piece(start, first, min(step, piece.n_tiles - tile), piece.width)

    def sums(self, vector: Tensor) -> Tensor:
        """[n_tiles] sums of the vector [d] over each tile."""
        if self.width == 1:
            return vector
        return torch.cat([piece.of(vector).sum(1) for piece in self.pieces])

    def norms(self, vector: Tensor) -> Tensor:
        """[n_tiles] norms of the vector [d] over each tile."""
        if self.width == 1:
            return vector.abs()
        norm = torch.linalg.vector_norm
        return torch.cat([norm(piece.of(vector), dim=1) for piece in self.pieces])

    def columns(self, tiles: Tensor) -> Tensor:
        """The columns of these `tiles` (increasing), in increasing order."""
        if self.width == 1:
            return tiles
        runs = []
        for piece, local, _ in self.split(tiles):
            within = torch.arange(piece.width, device=tiles.device)
            runs.append((piece.start + (local[:, None] * piece.width + within)).flatten())
        return torch.cat(runs) if runs else tiles.new_empty(0)

    def n_columns(self, tiles: Tensor) -> int:
        """The number of columns of these tiles."""
        if self.width == 1:
            return len(tiles)
        return sum(piece.width * len(local) for piece, local, _ in self.split(tiles))

    def most_columns(self, n_tiles: int) -> int:
        """The largest number of columns that so many tiles can have."""
        found = 0
        for piece in sorted(self.pieces, key=lambda piece: -piece.width):
            taken = min(n_tiles, piece.n_tiles)
            found, n_tiles = found + taken * piece.width, n_tiles - taken
        return found

    def split(self, tiles: Tensor) -> Iterator[tuple[Piece, Tensor, slice]]:
        """The `tiles` (increasing) by piece: the piece, places in it, and places among `tiles`."""
        firsts = [piece.first for piece in self.pieces] + [self.n_tiles]
        cuts = torch.searchsorted(tiles, torch.tensor(firsts, device=tiles.device)).tolist()
        for piece, start, stop in zip(self.pieces, cuts[:-1], cuts[1:], strict=True):
            if stop > start:
                yield piece, tiles[start:stop] - piece.first, slice(start, stop)

    def expand(self, values: Tensor, tiles: Tensor) -> Tensor:
        """[k] the values [len(tiles)] of each tile, repeated for each of its columns."""
        split = self.split(tiles)
        return torch.cat([values[at].repeat_interleave(piece.width) for piece, _, at in split])

    def by_section(self, tiles: Tensor) -> dict[int, int]:
        """The number of columns of these `tiles` (increasing) in each section that has any."""
        edges = list(accumulate(self.sections, initial=0))
        counts: dict[int, int] = {}
        for piece, local, _ in self.split(tiles):
            section = bisect_right(edges, piece.start) - 1
            counts[section] = counts.get(section, 0) + len(local) * piece.width
        return counts

    def magnitudes(self, values: Tensor, tiles: Tensor) -> Tensor:
        """[len(tiles)] the largest absolute value of each tile, from the values [k] on them."""
        found, start = [], 0
        for piece, local, _ in self.split(tiles):
            stop = start + len(local) * piece.width
            found.append(values[start:stop].view(-1, piece.width).abs().amax(1))
            start = stop
        return torch.cat(found)

    def take(self, vector: Tensor, tiles: Tensor) -> Tensor:
        """[k] the entries of the vector [d] in these tiles."""
        if self.width == 1:  # a tile is a column
            return vector[tiles]
        split = self.split(tiles)
        return torch.cat([piece.of(vector)[local].flatten() for piece, local, _ in split])

    def put(self, vector: Tensor, tiles: Tensor, values: Tensor) -> None:
        """Write `values` [k] to these tiles of the vector [d]."""
        if self.width == 1:
            vector[tiles] = values
            return
        start = 0
        for piece, local, _ in self.split(tiles):
            n_values = len(local) * piece.width
            piece.of(vector)[local] = values[start : start + n_values].view(-1, piece.width)
            start += n_values

    def clear(self, tensor: Tensor, tiles: Tensor) -> None:
        """Set these tiles of the tensor [..., d] to zero."""
        if self.width == 1:
            tensor.index_fill_(-1, tiles, 0.0)
            return
        for piece, local, _ in self.split(tiles):
            piece.of(tensor).index_fill_(-2, local, 0.0)


@final
class Block:
    """Chosen columns, with the probability of each to be chosen.

    Args:
        tiling: the tiles to choose from.
        tiles: [t] numbers of the chosen tiles, increasing, on the CPU; or a function that returns
            them, which is called only if they are asked for.
        probabilities: [t] probability of each of these tiles to be chosen (float64, CPU); 1 for
            each by default.
    """

    def __init__(
        self,
        tiling: Tiling,
        tiles: Tensor | Callable[[], Tensor],
        probabilities: Tensor | None = None,
    ) -> None:
        self.tiling = tiling
        self._tiles = tiles
        self._probabilities = probabilities

    @cached_property
    def tiles(self) -> Tensor:
        """[t] numbers of the chosen tiles, increasing, on the CPU."""
        return self._tiles if isinstance(self._tiles, Tensor) else self._tiles()

    @cached_property
    def probabilities(self) -> Tensor:
        """[t] probability of each of these tiles to be chosen (float64, CPU)."""
        if self._probabilities is not None:
            return self._probabilities
        return torch.ones(len(self.tiles), dtype=torch.float64)

    @property
    def is_whole(self) -> bool:
        """Whether the block contains every column."""
        return len(self.tiles) == self.tiling.n_tiles

    @cached_property
    def columns(self) -> Tensor:
        """[k] the chosen columns, increasing."""
        return self.tiling.columns(self.tiles)

    @cached_property
    def column_probabilities(self) -> Tensor:
        """[k] probability of each of these columns to be chosen."""
        return self.tiling.expand(self.probabilities, self.tiles)

    def __len__(self) -> int:
        """The number of chosen columns, k."""
        return self._n_columns

    @cached_property
    def _n_columns(self) -> int:
        return self.tiling.n_columns(self.tiles)
