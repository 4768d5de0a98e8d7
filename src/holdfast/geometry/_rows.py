"""The operations that rules use on n gradient estimates, however they are stored."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from holdfast._typing import RowLayout
from holdfast.geometry._gram import Gram, Lengths
from holdfast.geometry._tiling import Tiling


class StreamableRows(Protocol):
    """Rows that a solver may read repeatedly, one weighted sum with its inner products per pass."""

    n: int
    d: int
    dtype: torch.dtype
    device: torch.device

    @property
    def has_working_dtype(self) -> bool: ...
    def squared_norms(self) -> Tensor: ...
    def sweep(self, weights: Tensor, out: Tensor) -> Tensor: ...
    def products_with_row(self, index: int) -> Tensor: ...
    def sampled_products(self, every: int) -> tuple[Tensor, float]: ...


class Rows(ABC):
    """n vectors of d coordinates, accessed through a few operations.

    Rules in Gram space use `gram` and `combine`, which all rows offer. Rules that read columns or
    single rows need more; rows that do not offer it raise an error.
    """

    n: int
    d: int
    dtype: torch.dtype
    device: torch.device
    n_lost: int = 0
    """The number of non-finite rows that were removed before: bad rows that are already known."""

    layout: RowLayout | None = None
    """Which columns belong to which parameter, if known."""

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

    def columns(self, block: Tensor) -> "Rows":
        """The rows restricted to the columns `block` [k], in increasing order."""
        raise self._unreadable_by("column")

    def keep(self, indices: Tensor) -> "Rows":
        """The rows at `indices`."""
        raise self._unreadable_by("row")

    def chunks(self, width: int) -> Iterator[tuple[int, Tensor]]:
        """Pairs of a first column and the rows [n, at most width] from there, left to right."""
        raise self._unreadable_by("column")

    def map_columns(self, function: Callable[[Tensor], Tensor], width: int) -> tuple[Tensor, bool]:
        """The vector [d] of `function` (chunk [n, c] -> [c]), and whether all rows are finite."""
        raise self._unreadable_by("column")

    @property
    def streamable(self) -> StreamableRows | None:
        """Rows in memory with the same differences as these, if there are any."""
        return None

    @property
    def sections(self) -> tuple[int, ...]:
        """Numbers of columns per parameter, or (d,) if the parameters are not known."""
        return (self.d,)

    def tile_norms(self, tiling: Tiling, *, careful: bool = False) -> Tensor:
        """[n, n_tiles] norms over each tile; `careful` ones neither overflow nor underflow."""
        raise self._unreadable_by("column")

    def tile_products(self, tiling: Tiling, weights: Tensor, vector: Tensor) -> Tensor:
        """[n_tiles] inner products over each tile of `combine(weights)` and the vector [d]."""
        raise self._unreadable_by("column")

    def tiles(self, tiling: Tiling, tiles: Tensor, factors: Tensor | None = None) -> Tensor:
        """[n, k] the columns of these `tiles` (increasing), each tile times its factor if given."""
        raise self._unreadable_by("column")

    def finite(self) -> Tensor:
        """Which rows are finite throughout: bool [n] on the CPU."""
        return torch.zeros(self.n, dtype=torch.bool).index_fill_(0, self.gram().kept, True)

    def _unreadable_by(self, unit: str) -> ValueError:
        return ValueError(
            f"{type(self).__name__} cannot be read by {unit}; "
            "use PerSample, or a rule that needs inner products only."
        )
