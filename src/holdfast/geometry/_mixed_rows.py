"""Rows that are combinations of other rows, without a copy of either."""

from collections.abc import Callable, Iterator, Sequence
from typing import final

import torch
from torch import Tensor

from holdfast.geometry._gram import Gram, Lengths
from holdfast.geometry._kernels import full_precision, map_chunks, working_dtype
from holdfast.geometry._rows import Rows


@final
class MixedRows(Rows):
    """The rows `matrix @ rows`, with `matrix` [n', n] over the finite rows.

    Their Gram matrix follows from that of `rows`, and a combination of mixed rows is a combination
    of rows: a rule in Gram space on top of any number of mixtures still reads the data twice.
    `measured` is the Gram matrix or the lengths of `rows`.
    """

    def __init__(self, rows: Rows, matrix: Tensor, measured: Lengths) -> None:
        self._rows = rows
        self._gram = measured.transformed(matrix) if isinstance(measured, Gram) else None
        self.matrix = torch.zeros(len(matrix), rows.n, dtype=torch.float64)
        """[n', n] coefficients over all of the underlying rows."""
        self.matrix[:, measured.kept] = matrix
        self.n, self.d, self.dtype, self.device = len(matrix), rows.d, rows.dtype, rows.device
        self.n_lost = measured.n_lost

    def gram(self, references: Sequence[Tensor] = (), row_weights: Tensor | None = None) -> Gram:
        if self._gram is None:
            gram = self._rows.gram(references)
            return gram.transformed(self.matrix[:, gram.kept])
        n_references = len(self._gram.products) - self._gram.n - 1
        assert n_references == len(references), "the mixing measured other references"
        return self._gram

    def combine(self, weights: Tensor, *, exact: bool = False) -> Tensor:
        return self._rows.combine(weights.to("cpu", torch.float64) @ self.matrix, exact=exact)

    def columns(self, block: Tensor) -> "MixedRows":
        rows = self._rows.columns(block)
        gram = rows.gram()
        return MixedRows(rows, self.matrix[:, gram.kept], gram)

    def keep(self, indices: Tensor) -> "MixedRows":
        kept = object.__new__(MixedRows)
        kept.__dict__.update(self.__dict__)
        indices = indices.cpu()
        if self._gram is not None:
            kept._gram = self._gram.transformed(torch.eye(self.n, dtype=torch.float64)[indices])
        kept.matrix = self.matrix[indices]
        kept.n = len(indices)
        return kept

    def chunks(self, width: int) -> Iterator[tuple[int, Tensor]]:
        # Rows without any weight may be non-finite, so they must not be multiplied by zero.
        used = torch.nonzero((self.matrix != 0).any(0))[:, 0]
        rows = self._rows if len(used) == self._rows.n else self._rows.keep(used)
        dtype = working_dtype(self.dtype)
        matrix = self.matrix[:, used].to(self.device, dtype)
        for start, chunk in rows.chunks(width):
            with full_precision():
                mixed = matrix @ chunk.to(dtype)
            yield start, mixed.to(self.dtype)

    def map_columns(self, function: Callable[[Tensor], Tensor], width: int) -> tuple[Tensor, bool]:
        out = torch.empty(self.d, dtype=self.dtype, device=self.device)
        return map_chunks(self.chunks(width), function, out)

    def finite(self) -> Tensor:
        return torch.ones(self.n, dtype=torch.bool)
