"""The operations that rules use on n gradient estimates, however they are stored."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import torch
from torch import Tensor

from holdfast._typing import RowLayout
from holdfast.geometry._gram import Gram, Lengths
from holdfast.geometry._holders import ALONE, Holders
from holdfast.geometry._kernels import map_chunks
from holdfast.geometry._tiling import Piece, Tiling


class Rows(ABC):
    """n vectors of d coordinates, accessed through a few operations.

    Rules in Gram space need no more than these operations. Rules that read columns, and blocks of
    columns, need :class:`ColumnRows`. `len(rows)` is n, `rows[i]` is row i, and `rows[indices]` are
    some of the rows.
    """

    n: int
    d: int
    dtype: torch.dtype
    device: torch.device
    n_lost: int = 0
    """The number of non-finite rows that were removed before: bad rows that are already known."""

    layout: RowLayout | None = None
    """Which columns belong to which parameter, if known."""

    holders: Holders = ALONE
    """Who holds the columns."""

    @property
    def n_columns(self) -> int:
        """The number of columns of all holders; d is the number of those that are here."""
        return self.d

    @abstractmethod
    def gram(self, references: Sequence[Tensor] = (), row_weights: Tensor | None = None) -> Gram:
        """Inner products among the finite rows, the `references` (vectors [d]) and the origin.

        If a base point is needed, it is in the middle of the majority by `row_weights` [n].
        """

    def lengths(self) -> Lengths:
        """Norms of the finite rows, by a lighter pass than `gram` if there is one."""
        return self.gram()

    @abstractmethod
    def combine(self, weights: Tensor, *, exact: bool = False) -> Tensor:
        """The vector [d] that is the sum of `weights[i]` times row i.

        Rows of weight zero have no part in it, whatever they hold. `exact` sums in float64.
        """

    @abstractmethod
    def keep(self, indices: Tensor) -> "Rows":
        """The rows at `indices`."""

    @property
    def sections(self) -> tuple[int, ...]:
        """Numbers of columns per parameter, or (d,) if the parameters are not known."""
        return (self.d,) if self.layout is None else self.layout.sizes

    def finite(self) -> Tensor:
        """Which rows are finite throughout: bool [n] on the CPU."""
        return torch.zeros(self.n, dtype=torch.bool).index_fill_(0, self.gram().kept, True)

    @property
    def streamable(self) -> "ColumnRows | None":
        """Rows in memory with the same differences as these, if there are any."""
        return None

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(self.n))

    @overload
    def __getitem__(self, index: int) -> Tensor: ...
    @overload
    def __getitem__(self, index: slice | Tensor | list[int]) -> "Rows": ...
    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, int):
            return self.keep(torch.arange(self.n)[index])
        if not -self.n <= index < self.n:
            raise IndexError(f"row {index} of {self.n} rows")
        return self.combine(torch.zeros(self.n).index_fill_(0, torch.tensor(index % self.n), 1.0))


class ColumnRows(Rows):
    """Rows whose columns can be read."""

    @abstractmethod
    def keep(self, indices: Tensor) -> "ColumnRows": ...

    @abstractmethod
    def chunks(self, width: int) -> Iterator[tuple[int, Tensor]]:
        """Pairs of a first column and the rows [n, at most width] from there, left to right."""

    @abstractmethod
    def tile_norms(self, tiling: Tiling) -> Tensor:
        """[n, n_tiles] norms over each tile; they neither overflow nor underflow."""

    @abstractmethod
    def tiles(self, tiling: Tiling, tiles: Tensor, factors: Tensor | None = None) -> Tensor:
        """[n, k] the columns of these `tiles` (increasing), each tile times its factor if given."""

    def groups(self, tiling: Tiling, n_columns: int) -> Iterator[tuple[Piece, Tensor]]:
        """Groups of tiles (see `Tiling.groups`), and the rows [n, n_tiles, width] there."""
        for piece in tiling.groups(n_columns):
            tiles = torch.arange(piece.first, piece.first + piece.n_tiles)
            yield piece, self.tiles(tiling, tiles).unfold(1, piece.width, piece.width)

    def map_columns(self, function: Callable[[Tensor], Tensor], width: int) -> tuple[Tensor, bool]:
        """The vector [d] of `function` (chunk [n, c] -> [c]), and whether all rows are finite."""
        out = torch.empty(self.d, dtype=self.dtype, device=self.device)
        is_finite = map_chunks(self.chunks(width), function, out)
        return out, self.holders.all(is_finite)

    def matrix(self) -> Tensor:
        """[n, d] a copy of the rows in one tensor."""
        out = torch.empty(self.n, self.d, dtype=self.dtype, device=self.device)
        for start, chunk in self.chunks(self.d):
            out[:, start : start + chunk.shape[1]] = chunk
        return out

    # `torch.as_tensor(rows)` asks for these two.
    def __dlpack__(self, **options: Any) -> Any:
        return self.matrix().__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return torch.empty(0, device=self.device).__dlpack_device__()


def by_column(rows: Rows) -> ColumnRows:
    """The rows, if their columns can be read."""
    if isinstance(rows, ColumnRows):
        return rows
    raise ValueError(
        f"{type(rows).__name__} cannot be read by column; "
        "use PerSample, or a rule that needs inner products only."
    )
