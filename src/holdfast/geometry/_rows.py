"""Rows: what a rule may ask of n gradient estimates, however they are stored."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from holdfast._typing import RowLayout
from holdfast.checks import failure
from holdfast.geometry._gram import Gram, Lengths
from holdfast.geometry._tiling import Tiling


class Sweepable(Protocol):
    """Rows that a solver may read again and again, a weighted sum and its inner products at a time."""

    n: int
    d: int
    dtype: torch.dtype
    device: torch.device

    @property
    def has_working_dtype(self) -> bool: ...
    def squared_norms(self) -> Tensor: ...
    def sweep(self, weights: Tensor, out: Tensor) -> Tensor: ...


class Rows(ABC):
    """n vectors of d coordinates, known through a few operations.

    A rule never needs the [n, d] matrix itself. Rules in Gram space ask for `gram` and `combine`, which all rows offer. Rules that
    look at columns or at single rows ask for more; rows that cannot tell say so in one sentence.
    """

    n: int
    d: int
    dtype: torch.dtype
    device: torch.device
    n_lost: int = 0
    """Rows that were not finite and were set aside already: so many bad ones fewer to expect."""

    layout: RowLayout | None = None
    """Which columns belong to which parameter, if whoever made the rows has said so."""

    @abstractmethod
    def gram(self, references: Sequence[Tensor] = (), row_weights: Tensor | None = None) -> Gram:
        """Inner products among the finite rows, the `references` (vectors [d]) and the origin.

        `row_weights` [n] say in what a majority is counted, where the rows must be measured from the middle of one.
        """

    def lengths(self) -> Lengths:
        """Norms of the finite rows, by a lighter pass than `gram` where there is one."""
        return self.gram()

    @abstractmethod
    def combine(self, weights: Tensor, *, exact: bool = False) -> Tensor:
        """The vector [d] that is the sum of `weights[i]` times row i; rows of weight zero have no part in it, whatever they hold.

        `exact` forms it in float64, for weights and entries of extreme size.
        """

    def columns(self, block: Tensor) -> "Rows":
        """The rows restricted to the columns `block` [k], in increasing order."""
        raise self._lacks("columns")

    def keep(self, indices: Tensor) -> "Rows":
        """Only the rows at `indices`."""
        raise self._lacks("single rows")

    def chunks(self, width: int) -> Iterator[tuple[int, Tensor]]:
        """The position of the first column, and the rows [n, at most width], chunk by chunk from left to right."""
        raise self._lacks("columns")

    def map_columns(self, function: Callable[[Tensor], Tensor], width: int) -> tuple[Tensor, bool]:
        """The vector [d] of `function` (chunk [n, c] -> [c]) over all columns, and whether no entry shows NaN, infinity or overflow."""
        raise self._lacks("columns")

    @property
    def points(self) -> Sweepable | None:
        """Rows in memory with the same differences as these, where there are any: enough for what does not depend on the origin."""
        return None

    @property
    def sections(self) -> tuple[int, ...]:
        """Numbers of columns that belong together, one per parameter; all of them, where nothing is known of parameters."""
        return (self.d,)

    def tile_norms(self, tiling: Tiling, *, careful: bool = False) -> Tensor:
        """[n, n_tiles] norms of the rows over each tile; `careful` ones are float64 and neither overflow nor underflow."""
        raise self._lacks("columns")

    def tile_products(self, tiling: Tiling, weights: Tensor, vector: Tensor) -> Tensor:
        """[n_tiles] inner products, over each tile, of the sum of `weights[i]` times row i with the vector [d]."""
        raise self._lacks("columns")

    def tiles(self, tiling: Tiling, tiles: Tensor, factors: Tensor | None = None) -> Tensor:
        """[n, k] the columns of these `tiles` (increasing), multiplied by the `factors` [len(tiles)] of their tiles."""
        raise self._lacks("columns")

    def finite(self) -> Tensor:
        """Which rows are finite throughout: bool [n] on the CPU."""
        return torch.zeros(self.n, dtype=torch.bool).index_fill_(0, self.gram().kept, True)

    def _lacks(self, what: str) -> ValueError:
        return failure(
            "rows",
            f"offer {what} to this rule",
            f"{type(self).__name__}, which has inner products and sums alone",
        )
