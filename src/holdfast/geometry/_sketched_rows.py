"""Rows whose inner products are estimated from some of their columns, and whose sums are exact."""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from holdfast.geometry._dense_rows import DenseRows
from holdfast.geometry._gram import Gram
from holdfast.geometry._kernels import working_dtype
from holdfast.geometry._measure import is_trustworthy
from holdfast.geometry._rows import ColumnRows, Rows
from holdfast.geometry._tiling import Block

# `python -m benchmarks when_a_block_pays`: the Gram matrix of a tenth of the columns then costs
# 1.5 means and more, as a scaled copy of the block with a few sweeps over it does.
MANY_ROWS = 512
"""From so many rows on, a solver may stream the sketch."""


@final
class SketchedRows(Rows):
    r"""Rows seen through a block of columns: estimated inner products, exact lengths and sums.

    Angles come from the columns of the block, each divided by the root of its probability
    :math:`\pi_j`, so that inner products are unbiased (Horvitz and Thompson):
    :math:`E \sum_{j \in I} x_j y_j / \pi_j = \sum_j x_j y_j`. Lengths come from all columns: the
    sketch of every row is scaled to the norm of the row. A row that is long in columns that were
    not drawn is seen to be long, so no draw of the block, however unlucky, lets it carry a sum
    away. Rows that are equal stay equal. A row that is zero on the block is at a right angle to all
    others.

    Args:
        rows: the rows.
        block: the columns that were drawn, with their probabilities.
        lengths: [n] norms of the rows (float64, CPU), not finite where the row is not.
    """

    def __init__(self, rows: ColumnRows, block: Block, lengths: Tensor) -> None:
        self.n, self.d, self.dtype, self.device = rows.n, rows.d, rows.dtype, rows.device
        self.layout, self.holders = rows.layout, rows.holders
        self._rows = rows
        self._block = block
        self._lengths = lengths
        self._sketch = _importance_weighted(rows, block)
        self._scaled: DenseRows | None = None

    @property
    def n_columns(self) -> int:
        return self._rows.n_columns

    @property
    def _points(self) -> DenseRows:
        """The sketch with every row scaled to its length."""
        # Not a cached_property, whose lock would keep holders in threads from meeting.
        if self._scaled is None:
            self._scaled = self._scale()
        return self._scaled

    def _scale(self) -> DenseRows:
        points = self._sketch.clone()
        sketch = DenseRows(points, holders=self.holders)
        found = sketch.squared_norms().sqrt().cpu().double()
        if not bool(((found > 1e-15) & (found < 1e15)).all()):  # squares may be out of range
            largest = sketch.magnitudes().cpu().double()
            points /= largest.where(largest > 0, 1.0).to(points)[:, None]
            found = sketch.squared_norms().sqrt().cpu().double()
        lengths = self._lengths
        unseen = (found == 0) & (lengths > 0)
        factors = torch.where(found > 0, lengths / found, 0.0)
        points *= factors.where(torch.isfinite(lengths), torch.nan).to(points)[:, None]
        if bool(unseen.any()):
            # A point at zero that has a length gets a column of its own, shared by all holders.
            n_holders = float(self.holders.sum(torch.ones((), device=self.device)))
            own = torch.diag(lengths.where(unseen, 0.0)) / n_holders**0.5
            points = torch.cat([points, own.to(points)], dim=1)
        return DenseRows(points, holders=self.holders)

    @property
    def streamable(self) -> DenseRows | None:
        return self._points if self.n >= MANY_ROWS else None

    def gram(self, references: Sequence[Tensor] = (), row_weights: Tensor | None = None) -> Gram:
        others = [self._of(reference) for reference in references]
        if bool(torch.isfinite(self._lengths).all()):
            sketch = DenseRows(self._sketch, holders=self.holders)
            gram = sketch.gram(others, row_weights)
            if not gram.exact:
                # Scaling n x n products is cheaper than scaling rows, and as good as long as the
                # scaled rows could be measured by the fast pass.
                scaled = gram.transformed(torch.diag(self._lengths / gram.norms))
                if is_trustworthy(scaled, sketch.dtype):
                    return scaled
        n_more = self._points.d - self._sketch.shape[1]
        padded = [torch.nn.functional.pad(other, (0, n_more)) for other in others]
        return self._points.gram(padded, row_weights)

    def combine(self, weights: Tensor, *, exact: bool = False) -> Tensor:
        return self._rows.combine(weights, exact=exact)

    def keep(self, indices: Tensor) -> "SketchedRows":
        indices = indices.cpu()
        return SketchedRows(self._rows.keep(indices), self._block, self._lengths[indices])

    def finite(self) -> Tensor:
        return torch.isfinite(self._lengths)

    def _of(self, vector: Tensor) -> Tensor:
        """[k] the sketch of a vector [d]."""
        rows = DenseRows(vector[None].to(self._sketch.dtype), layout=self.layout)
        return _importance_weighted(rows, self._block)[0]


def _importance_weighted(rows: ColumnRows, block: Block) -> Tensor:
    """[n, k] the columns of the block, each divided by the root of its probability."""
    if rows.dtype == working_dtype(rows.dtype):
        return rows.tiles(block.tiling, block.tiles, block.probabilities.rsqrt())
    columns = rows.tiles(block.tiling, block.tiles).to(working_dtype(rows.dtype))
    return columns.mul_(block.column_probabilities.rsqrt().to(columns))
