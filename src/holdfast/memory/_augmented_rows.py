"""Rows with what the memory carries added to each of them, without a copy of the rows."""

from collections.abc import Iterator
from typing import final

import torch
from torch import Tensor

from holdfast._compile import WIDTH
from holdfast.checks import check_finite_majority, check_finite_weight, check_row_weights
from holdfast.geometry import (
    Block,
    DenseRows,
    Rows,
    Tiling,
    half_weight_radius,
    length,
    working_dtype,
)

WIDE = 16
"""From tiles of so many columns on, the norms of all tiles take about a sixteenth of the rows' memory, or less."""


@final
class AugmentedRows:
    r"""The rows :math:`a_i = g_i + r_i`, where r is what the memory carries, in units of gradients.

    Scores, sums and blocks of a follow from those of g and r; a is never formed.

    Args:
        rows: the :math:`g_i`.
        carried: r divided by `scale`: [d] the same for all rows, [n, d] one for each, or None for zero.
        scale: what `carried` is multiplied by, so that no copy is needed for that.
        row_weights: [n] how much each row counts; equal weights by default.
    """

    def __init__(
        self,
        rows: Rows,
        carried: Tensor | None = None,
        scale: float = 1.0,
        row_weights: Tensor | None = None,
    ) -> None:
        self.rows = rows
        self.carried = carried
        self.scale = scale
        self._by_row = carried is not None and carried.ndim == 2
        self._lengths: Tensor | None = None
        self._row_weights = None if row_weights is None else check_row_weights(row_weights, rows.n)

    @property
    def lengths(self) -> Tensor:
        """[n] norms of the :math:`g_i` (of the :math:`a_i`, where each row has its own r), on the CPU; not finite where the row is not."""
        if self._lengths is None:
            self._lengths = (
                self._row_lengths()
                if self._by_row
                else self._tile_norms(Tiling(self.rows.sections, None))[1]
            )
        return self._lengths

    @property
    def finite(self) -> Tensor:
        """Bool [n] which rows are finite throughout."""
        return torch.isfinite(self.lengths)

    @property
    def counts(self) -> Tensor:
        """[n] how many rows each counts as; zero where it is not finite."""
        equal = torch.ones(self.rows.n, dtype=torch.float64)
        counts = equal if self._row_weights is None else self._row_weights * self.rows.n
        return counts.where(self.finite, 0.0)

    def scores(self, tiling: Tiling, *, capped: bool) -> Tensor:
        r"""[n_tiles] squared norms of the tiles over all finite rows, up to a common factor (float64, CPU).

        If `capped`, rows longer than the median row are shortened to it: about r where it is common to all,
        :math:`\sum_i \|c_i g_i + r\|^2` with :math:`c_i = \min(1, \mathrm{median} / \|g_i\|)`, because r says nothing about a row.
        Row weights count in the sum and in the median.
        """
        norms = None
        if not self._by_row and (tiling.width is None or tiling.width >= WIDE):
            norms, self._lengths = self._tile_norms(tiling)  # one pass gives both
        counts = self.counts
        if self._row_weights is None:
            check_finite_majority(self.finite)
        else:
            check_finite_weight(float(counts.sum()) / self.rows.n)
        factors, unit = self._relative_factors(counts, capped)
        if norms is None:
            return tiling.sums(self._column_scores(factors, counts, unit)).cpu().double()
        if not bool(self.finite.all()):
            norms[~self.finite.to(norms.device)] = 0.0
        squares = _weighted_squares(norms, factors * counts.sqrt())
        if self.carried is None:
            return squares
        carried, scale = self.carried, self.scale / unit
        if not 1e-15 < scale < 1e15 or unit > 1e15:  # its squares would not fit float32
            carried, scale = (carried.double() * scale).to(carried), 1.0
        along = self.rows.tile_products(tiling, factors * counts, carried).cpu().double() * scale
        own = (tiling.norms(carried).cpu().double() * scale).square()
        return (squares + 2 * along + counts.sum() * own).clamp(min=0.0)

    def block(self, block: Block) -> Rows:
        """The rows on the columns of the block; rows that are not finite elsewhere are not finite there, either."""
        if block.is_whole and self.carried is None:
            return self.rows
        columns = self.rows.tiles(block.tiling, block.tiles)
        if self.carried is not None:
            carried = self._as_rows_of_carried().tiles(block.tiling, block.tiles)
            columns = torch.add(columns, carried, alpha=self.scale)
        columns[~self.finite.to(columns.device)] = torch.nan
        return DenseRows(columns)

    def combine(self, weights: Tensor, *, exact: bool = False) -> Tensor:
        """[d] the sum of `weights[i]` times :math:`a_i`, in the dtype of the memory."""
        total = self.rows.combine(weights, exact=exact).to(working_dtype(self.rows.dtype))
        if self.carried is None:
            return total
        if self._by_row:
            return total.add_(self._as_rows_of_carried().combine(weights * self.scale, exact=exact))
        return total.add_(self.carried, alpha=float(weights.sum()) * self.scale)

    def _as_rows_of_carried(self) -> DenseRows:
        assert self.carried is not None
        return DenseRows(self.carried if self._by_row else self.carried[None])

    def _tile_norms(self, tiling: Tiling) -> tuple[Tensor, Tensor]:
        """[n, n_tiles] norms of the :math:`g_i`, and [n] lengths; careful ones only where the first pass shows that they are needed."""
        norms = self.rows.tile_norms(tiling)
        lengths = torch.linalg.vector_norm(norms, dim=1).cpu().double()
        smallest = (
            1e6 * torch.finfo(norms.dtype).tiny * self.rows.d
        )  # below, squares of usual entries were lost
        if bool(torch.isfinite(lengths).all()) and float(lengths.median()) ** 2 > smallest:
            return norms, lengths
        norms = self.rows.tile_norms(tiling, careful=True)
        largest = norms.amax(1, keepdim=True)
        relative = norms / largest.where(largest > 0, 1.0)
        return norms, (torch.linalg.vector_norm(relative, dim=1) * largest[:, 0]).cpu()

    def _row_lengths(self) -> Tensor:
        """[n] norms of the :math:`a_i`, where each row has its own r."""
        squares = torch.zeros(self.rows.n, dtype=torch.float64)
        for _, chunk in self._chunks(self.rows):
            squares += chunk.cpu().double().square().sum(1)
        return squares.sqrt()

    def _relative_factors(self, counts: Tensor, capped: bool) -> tuple[Tensor, float]:
        """[n] what each row is multiplied by in the scores, zero where it does not count; and the length that counts as one."""
        lengths = self.lengths.where(counts > 0, 0.0)
        median = half_weight_radius(lengths[counts > 0], counts[counts > 0])
        shortened = lengths.clamp(max=median) if capped else lengths
        unit = float(shortened.max())
        if self.carried is not None and not self._by_row:
            unit = max(unit, length(self.carried) * self.scale)
        unit = unit or 1.0
        factors = torch.where(lengths > 0, shortened / lengths, 1.0) / unit
        return factors.where(counts > 0, 0.0), unit

    def _column_scores(self, factors: Tensor, counts: Tensor, unit: float) -> Tensor:
        """[d] the scores of single columns, chunk by chunk."""
        kept = torch.nonzero(counts)[:, 0]
        rows = self.rows if len(kept) == self.rows.n else self.rows.keep(kept)
        out = torch.empty(rows.d, dtype=working_dtype(rows.dtype), device=rows.device)
        scale, weights = factors[kept].to(out)[:, None], counts[kept].to(out)
        for start, chunk in self._chunks(rows, kept):
            at = slice(start, start + chunk.shape[1])
            scaled = chunk * scale
            if self.carried is not None and not self._by_row:
                scaled += self.carried[at] * (self.scale / unit)
            out[at] = weights @ scaled.square_()
        return out

    def _chunks(self, rows: Rows, kept: Tensor | None = None) -> Iterator[tuple[int, Tensor]]:
        """Chunks of the :math:`g_i`, with r added where each row has its own."""
        for start, chunk in rows.chunks(WIDTH):
            chunk = chunk.to(working_dtype(rows.dtype))
            if self._by_row and self.carried is not None:
                own = self.carried[:, start : start + chunk.shape[1]]
                chunk = torch.add(
                    chunk, own if kept is None else own[kept.to(own.device)], alpha=self.scale
                )
            yield start, chunk


def _weighted_squares(norms: Tensor, factors: Tensor) -> Tensor:
    """[n_tiles] sums over rows of `(factors[i] * norms[i])**2` (float64, CPU). Overwrites `norms`."""
    # Rows of extreme size have float64 norms; they are scaled before they are squared.
    if norms.dtype is torch.float64:
        return norms.mul_(factors.to(norms)[:, None]).square_().sum(0).cpu()
    return (factors.square().to(norms) @ norms.square_()).cpu().double()
