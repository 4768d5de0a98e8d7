"""Rows that are combinations of other rows, without a copy of either."""

from collections.abc import Iterator, Sequence
from typing import Self, final

import torch
from torch import Tensor

from holdfast.geometry._gram import Gram, Lengths
from holdfast.geometry._kernels import full_precision, working_dtype
from holdfast.geometry._rows import ColumnRows, Rows
from holdfast.geometry._tiling import Tiling

CHUNK = 2**16
"""Columns whose mixtures are formed at a time."""


class Mixture(Rows):
    """The rows `matrix @ rows`, with `matrix` [n', n] over the finite rows.

    Their Gram matrix follows from that of `rows`, and a combination of mixed rows is a combination
    of rows: a rule in Gram space on top of any number of mixtures still reads the data twice.

    Args:
        rows: the rows that are mixed.
        matrix: [n', n_finite] coefficients over the finite rows.
        measured: the Gram matrix or the lengths of `rows`.
    """

    def __init__(self, rows: Rows, matrix: Tensor, measured: Lengths) -> None:
        self.rows = rows
        self._gram = measured.transformed(matrix) if isinstance(measured, Gram) else None
        self._measured = measured
        self._finite_matrix = matrix
        self.coefficients = torch.zeros(len(matrix), rows.n, dtype=torch.float64)
        """[n', n] the matrix over all of the underlying rows."""
        self.coefficients[:, measured.kept] = matrix
        self.n, self.d, self.dtype, self.device = len(matrix), rows.d, rows.dtype, rows.device
        self.n_lost = measured.n_lost
        self.layout = rows.layout
        self.holders = rows.holders

    def gram(self, references: Sequence[Tensor] = (), row_weights: Tensor | None = None) -> Gram:
        if self._gram is None:
            gram = self.rows.gram(references)
            return gram.transformed(self.coefficients[:, gram.kept])
        n_references = len(self._gram.products) - self._gram.n - 1
        assert n_references == len(references), "the mixing measured other references"
        return self._gram

    def combine(self, weights: Tensor, *, exact: bool = False) -> Tensor:
        return self.rows.combine(weights.to("cpu", torch.float64) @ self.coefficients, exact=exact)

    def keep(self, indices: Tensor) -> Self:
        # The constructor of MixedRows or of MixedColumnRows, which have the same arguments.
        return type(self)(self.rows, self._finite_matrix[indices.cpu()], self._measured)

    def finite(self) -> Tensor:
        return torch.ones(self.n, dtype=torch.bool)


@final
class MixedRows(Mixture):
    """A mixture of rows that have inner products and sums only."""


@final
class MixedColumnRows(Mixture, ColumnRows):
    """A mixture of rows whose columns can be read: chunk by chunk it is formed when it is
    needed.
    """

    rows: ColumnRows

    def chunks(self, width: int) -> Iterator[tuple[int, Tensor]]:
        rows, matrix = self._used()
        for start, chunk in rows.chunks(width):
            yield start, _mixed(matrix, chunk)

    def tile_norms(self, tiling: Tiling) -> Tensor:
        norms = torch.empty(self.n, tiling.n_tiles, dtype=torch.float64, device=self.device)
        for piece, tiled in self.groups(tiling, CHUNK):
            at = slice(piece.first, piece.first + piece.n_tiles)
            norms[:, at] = torch.linalg.vector_norm(tiled.double(), dim=2)
        return norms

    def tiles(self, tiling: Tiling, tiles: Tensor, factors: Tensor | None = None) -> Tensor:
        rows, matrix = self._used()
        return _mixed(matrix, rows.tiles(tiling, tiles, factors))

    def _used(self) -> tuple[ColumnRows, Tensor]:
        """The rows that have a weight in any mixture, and the matrix over them."""
        # Rows without any weight may be non-finite, so they must not be multiplied by zero.
        used = torch.nonzero((self.coefficients != 0).any(0))[:, 0]
        matrix = self.coefficients[:, used].to(self.device, working_dtype(self.dtype))
        if len(used) == self.rows.n:
            return self.rows, matrix
        return self.rows.keep(used), matrix


def mixed_rows(rows: Rows, matrix: Tensor, measured: Lengths) -> Mixture:
    """The mixture of the rows, whose columns can be read if those of the rows can."""
    if isinstance(rows, ColumnRows):
        return MixedColumnRows(rows, matrix, measured)
    return MixedRows(rows, matrix, measured)


def _mixed(matrix: Tensor, columns: Tensor) -> Tensor:
    with full_precision():
        return (matrix @ columns.to(matrix.dtype)).to(columns.dtype)
