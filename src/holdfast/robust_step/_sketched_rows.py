"""Rows that a rule sees through a few of their columns, and sums as a whole."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import final

import torch
from torch import Tensor

from holdfast.geometry import Block, DenseRows, Gram, Rows, is_trustworthy, working_dtype
from holdfast.memory import AugmentedRows

MANY_ROWS = 256
"""The Gram matrix of a tenth of the columns then costs 1.5 means and more (a tenth of `gram` in `python -m benchmarks when_a_block_pays`), as a
scaled copy of the block with a few sweeps over it does."""


def importance_weighted(rows: Rows, block: Block) -> Tensor:
    r"""[n, k] the columns of the block, each divided by the root of its chance :math:`\pi_j`.

    Inner products of the result are unbiased estimates of those of the whole rows (Horvitz and Thompson):
    :math:`E \sum_{j \in I} x_j y_j / \pi_j = \sum_j x_j y_j`.
    """
    if rows.dtype == working_dtype(rows.dtype):
        return rows.tiles(block.tiling, block.tiles, block.probabilities.rsqrt())
    columns = rows.tiles(block.tiling, block.tiles).to(working_dtype(rows.dtype))
    return columns.mul_(block.column_probabilities.rsqrt().to(columns))


@final
class SketchedRows(Rows):
    r"""The rows :math:`a_i = g_i + r`, whose inner products are estimated from a block, and whose sums are exact.

    About r, angles come from the importance-weighted block and lengths from all columns: the sketch of every :math:`g_i` is scaled to
    the norm that :math:`g_i` has. A row can then be as long as it likes in columns that were not drawn: it is seen to be long, and no draw of
    the block, however unlucky, lets it carry a sum away. Rows that agree still agree in the sketch. A row of which the block
    holds nothing at all stands at a right angle to the others.

    Args:
        augmented: the rows and what is carried, the same for all of them.
        block: the columns drawn, with their probabilities.
    """

    def __init__(self, augmented: AugmentedRows, block: Block) -> None:
        rows = augmented.rows
        self.n, self.d, self.dtype, self.device = rows.n, rows.d, rows.dtype, rows.device
        self._augmented = augmented
        self._block = block
        self._sketch = importance_weighted(rows, block)
        self._kept = torch.arange(rows.n)

    @cached_property
    def _points(self) -> DenseRows:
        """The sketch, about r, with every row scaled to its length."""
        points = DenseRows(_scaled_to(self._sketch.clone(), self._augmented.lengths))
        return points if self._kept.equal(torch.arange(points.n)) else points.keep(self._kept)

    @property
    def streamable(self) -> DenseRows | None:
        return self._points if self.n >= MANY_ROWS else None

    def gram(self, references: Sequence[Tensor] = (), row_weights: Tensor | None = None) -> Gram:
        others = [self._of(reference) for reference in references]
        if self._augmented.carried is None:
            return self._gram(others, row_weights)
        base = self._of(self._augmented.carried).mul_(self._augmented.scale)
        gram = self._gram([*(other - base for other in others), -base], row_weights)
        # Everything was seen from r, so the origin is -r; the point at zero, which comes last, has done its work.
        return replace(gram, products=gram.products[:-1, :-1], uncentered=None)

    def _gram(self, others: Sequence[Tensor], row_weights: Tensor | None) -> Gram:
        """Inner products about r, with the sketches [k] of other vectors."""
        lengths, sketch = self._augmented.lengths, DenseRows(self._sketch)
        if self._kept.equal(torch.arange(len(lengths))) and bool(torch.isfinite(lengths).all()):
            gram = sketch.gram(others, row_weights)
            if not gram.exact:
                # To scale n x n products is cheaper than to scale rows; good as long as the scaled ones, too, could be measured fast.
                scaled = gram.transformed(torch.diag(lengths / gram.norms))
                if is_trustworthy(scaled, sketch.d, sketch.dtype):
                    return scaled
        n_more = self._points.d - self._sketch.shape[1]
        return self._points.gram(
            [torch.nn.functional.pad(other, (0, n_more)) for other in others], row_weights
        )

    def combine(self, weights: Tensor, *, exact: bool = False) -> Tensor:
        spread = torch.zeros(self._augmented.rows.n, dtype=torch.float64)
        spread[self._kept] = weights.to(spread)
        return self._augmented.combine(spread, exact=exact)

    def keep(self, indices: Tensor) -> "SketchedRows":
        kept = object.__new__(SketchedRows)
        kept.__dict__.update(
            {name: value for name, value in self.__dict__.items() if name != "_points"}
        )
        kept._kept = self._kept[indices.cpu()]
        kept.n = len(indices)
        return kept

    def finite(self) -> Tensor:
        return self._augmented.finite[self._kept]

    def _of(self, vector: Tensor) -> Tensor:
        """[k] the sketch of a vector [d]."""
        return importance_weighted(DenseRows(vector[None].to(self._sketch.dtype)), self._block)[0]


def _scaled_to(points: Tensor, lengths: Tensor) -> Tensor:
    """The points [n, k], each scaled to its length; NaN where that is not finite. Overwrites `points`.

    A point at zero that has a length gets a column of its own.
    """
    found = torch.linalg.vector_norm(points, dim=1).cpu().double()
    if not bool(((found > 1e-15) & (found < 1e15)).all()):  # squares may have left float32's range
        largest = points.abs().amax(1).cpu().double()
        points /= largest.where(largest > 0, 1.0).to(points)[:, None]
        found = torch.linalg.vector_norm(points, dim=1).cpu().double()
    unseen = (found == 0) & (lengths > 0)
    factors = torch.where(found > 0, lengths / found, 0.0).where(torch.isfinite(lengths), torch.nan)
    points *= factors.to(points)[:, None]
    if bool(unseen.any()):
        points = torch.cat([points, torch.diag(lengths.where(unseen, 0.0)).to(points)], dim=1)
    return points
