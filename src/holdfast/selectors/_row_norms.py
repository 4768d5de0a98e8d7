"""Norms of the tiles over all rows, by which blocks of rows are drawn."""

import torch
from torch import Tensor

from holdfast._compile import WIDTH
from holdfast.checks import check_finite_majority, check_finite_weight
from holdfast.geometry import ColumnRows, Tiling, half_weight_radius, working_dtype

WIDE = 16
"""From so many columns on, the norms of all tiles take a sixteenth of the rows' memory or less."""


def row_norms(
    rows: ColumnRows, tiling: Tiling, *, capped: bool, row_weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    r"""The norm of each tile over all finite rows, and the length of each row.

    Returns :math:`s_j = (\sum_i n_i \|c_i a_{ij}\|^2)^{1/2}` [n_tiles], up to a common factor, and
    the norms of the rows [n], which are not finite where the row is not (both float64, CPU).
    :math:`n_i` is how many rows row i counts as, by `row_weights` [n]. :math:`c_i` is 1, or if
    `capped`, shortens rows longer than the median row to it.
    """
    is_wide = tiling.width is None or tiling.width >= WIDE
    norms = rows.tile_norms(tiling if is_wide else Tiling(rows.sections, None))
    # In units of its longest tile no square of a row overflows, and none that counts underflows.
    longest = rows.holders.max(norms.amax(1).double())
    unit = longest.where(longest > 0, 1.0)
    squares = norms.div_(unit.to(norms)[:, None]).square_()
    unit = unit.cpu()
    lengths = rows.holders.sum(squares.sum(1, dtype=torch.float64)).sqrt().cpu() * unit
    finite = torch.isfinite(lengths)
    counts = torch.ones_like(lengths) if row_weights is None else row_weights * rows.n
    counts = counts.where(finite, 0.0)
    if row_weights is None:
        check_finite_majority(finite)
    else:
        check_finite_weight(float(counts.sum()) / rows.n)
    factors = _factors(lengths, counts, capped)
    if not is_wide:
        return tiling.sums(_column_squares(rows, factors, counts)).cpu().double().sqrt(), lengths
    if not bool(finite.all()):
        squares[~finite.to(squares.device)] = 0.0
    weights = ((factors * unit).square() * counts).where(finite, 0.0)
    return (weights.to(squares) @ squares).cpu().double().sqrt(), lengths


def _factors(lengths: Tensor, counts: Tensor, capped: bool) -> Tensor:
    """[n] the factor of each row, with the longest one scaled to length 1."""
    lengths = lengths.where(counts > 0, 0.0)
    if capped:
        median = half_weight_radius(lengths[counts > 0], counts[counts > 0])
        shortened = lengths.clamp(max=median)
    else:
        shortened = lengths
    longest = float(shortened.max()) or 1.0
    factors = torch.where(lengths > 0, shortened / lengths, 1.0) / longest
    return factors.where(counts > 0, 0.0)


def _column_squares(rows: ColumnRows, factors: Tensor, counts: Tensor) -> Tensor:
    """[d] squared norms of the single columns, chunk by chunk."""
    kept = torch.nonzero(counts)[:, 0]
    rows = rows if len(kept) == rows.n else rows.keep(kept)
    out = torch.empty(rows.d, dtype=working_dtype(rows.dtype), device=rows.device)
    scale, weights = factors[kept].to(out)[:, None], counts[kept].to(out)
    for start, chunk in rows.chunks(WIDTH):
        scaled = chunk.to(out.dtype) * scale
        out[start : start + chunk.shape[1]] = weights @ scaled.square_()
    return out
