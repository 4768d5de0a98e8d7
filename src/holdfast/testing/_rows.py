"""The promises of all rows."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.geometry import ColumnRows, DenseRows, Rows, Tiling
from holdfast.testing._promises import ensure, keep_promises


@dataclass(frozen=True, kw_only=True)
class RowsSubject:
    """Rows under test, and the matrix [n, d] that they stand for."""

    rows: Rows
    matrix: Tensor

    @property
    def tolerance(self) -> float:
        return 1e-9 if self.matrix.dtype is torch.float64 else 1e-3

    def is_close(self, found: Tensor, wanted: Tensor) -> bool:
        scale = float(wanted.double().abs().max()) or 1.0
        difference = (found.cpu().double() - wanted.cpu().double()).abs().max()
        return found.shape == wanted.shape and float(difference) <= self.tolerance * scale


def _says_what_it_holds(on: RowsSubject) -> None:
    rows, matrix = on.rows, on.matrix
    found = (rows.n, rows.d, rows.dtype, rows.device)
    wanted = (*matrix.shape, matrix.dtype, matrix.device)
    ensure(found == wanted, f"n, d, dtype and device are {found}, not {wanted}")
    ensure(len(rows) == rows.n, "`len` is not n")
    ensure(sum(rows.sections) == rows.d, "`sections` do not add up to d")


def _has_its_inner_products(on: RowsSubject) -> None:
    wide = on.matrix.double()
    reference = wide.mean(0) + 1.0
    points = torch.cat([wide, reference[None], torch.zeros_like(reference)[None]])
    gram = on.rows.gram([reference.to(on.matrix)])
    ensure(gram.kept.equal(torch.arange(on.rows.n)), "`gram` loses rows that are finite")
    found = gram.about_origin * gram.unit**2
    ensure(on.is_close(found, points @ points.T), "`gram` has other inner products")
    lengths = on.rows.lengths()
    norms = lengths.norms * lengths.unit
    ensure(on.is_close(norms, wide.norm(dim=1)), "`lengths` has other norms")


def _combines(on: RowsSubject) -> None:
    weights = torch.linspace(-1, 2, on.rows.n, dtype=torch.float64)
    weights[0] = 0.0
    for exact in (False, True):
        found = on.rows.combine(weights, exact=exact)
        ensure(on.is_close(found, weights @ on.matrix.cpu().double()), "`combine` is another sum")
    last = on.rows[on.rows.n - 1]
    ensure(on.is_close(last, on.matrix[-1]), "the last row is not the last row of the matrix")


def _keeps_some(on: RowsSubject) -> None:
    kept = on.rows.keep(torch.tensor([on.rows.n - 1, 0]))
    found = kept.combine(torch.tensor([1.0, 10.0]))
    wanted = on.matrix[-1].double() + 10 * on.matrix[0].double()
    ensure(kept.n == 2 and on.is_close(found, wanted), "`keep` returns other rows")
    ensure(bool(on.rows.finite().all()), "`finite` calls finite rows not finite")


def _reads_columns(on: RowsSubject) -> None:
    if not isinstance(on.rows, ColumnRows):
        return
    found = torch.cat([chunk for _, chunk in on.rows.chunks(7)], dim=1)
    ensure(on.is_close(found, on.matrix), "`chunks` are not the matrix from left to right")
    tiling, dense = Tiling(on.rows.sections, 4), DenseRows(on.matrix)
    tiles = torch.arange(0, tiling.n_tiles, 2)
    same = on.is_close(on.rows.tiles(tiling, tiles), dense.tiles(tiling, tiles))
    ensure(same, "`tiles` are other columns")
    same = on.is_close(on.rows.tile_norms(tiling), dense.tile_norms(tiling))
    ensure(same, "`tile_norms` are other norms")


PROMISES: dict[str, Callable[[RowsSubject], None]] = {
    "says what it holds": _says_what_it_holds,
    "has its inner products": _has_its_inner_products,
    "combines": _combines,
    "keeps some": _keeps_some,
    "reads columns": _reads_columns,
}


def check_rows(rows: Rows, matrix: Tensor) -> None:
    """Check that the rows are those of the matrix [n, d], in all operations that rules use.

    Args:
        rows: the rows under test, at least two, all finite.
        matrix: the rows that they stand for.

    Raises:
        AssertionError: with a sentence that names the first broken promise.

    Example:
        >>> matrix = torch.randn(5, 12)
        >>> check_rows(DenseRows([matrix[:, :8], matrix[:, 8:]]), matrix)
    """
    keep_promises(PROMISES, RowsSubject(rows=rows, matrix=matrix), rows)
