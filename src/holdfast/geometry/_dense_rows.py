"""Rows in memory."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import final

import torch
from torch import Tensor

from holdfast._typing import RowLayout, TensorOrTensors
from holdfast.checks import check_rows, failure
from holdfast.geometry import _kernels
from holdfast.geometry._gram import CleanLengths, Gram, Lengths
from holdfast.geometry._holders import ALONE, Holders
from holdfast.geometry._measure import measure, norms_in_safe_range
from holdfast.geometry._parts import CACHED, Parts
from holdfast.geometry._rows import ColumnRows
from holdfast.geometry._tiling import Piece, Tiling

SWEPT = 2**21
"""Entries of the rows between two products of a sweep: the second one reads from the cache."""


@final
class DenseRows(ColumnRows):
    """One [n, d] tensor, or one [n, ...] tensor per parameter.

    Several tensors act as one matrix, as if flattened and concatenated, but are never copied into
    one.

    Args:
        tensors: the tensors that hold the rows.
        layout: which columns belong to which parameter; without one, each tensor counts as a
            parameter.
        holders: who holds the columns, if these are not all of them.
        n_columns: the number of columns of all holders; counted by them if it is not given.
        kept: positions of the rows to use; all by default. The others are never read.

    Example:
        >>> rows = DenseRows([torch.ones(3, 2, 2), torch.zeros(3, 5)])
        >>> len(rows), rows.d
        (3, 9)
        >>> rows[0]
        tensor([1., 1., 1., 1., 0., 0., 0., 0., 0.])
    """

    def __init__(
        self,
        tensors: TensorOrTensors,
        *,
        layout: RowLayout | None = None,
        holders: Holders = ALONE,
        n_columns: int | None = None,
        kept: Tensor | None = None,
    ) -> None:
        self._tensors = check_rows(tensors)
        first = self._tensors[0]
        if not isinstance(tensors, Sequence) and first.ndim != 2:
            shape = "have shape [n, d] (or be a list of [n, ...] tensors)"
            raise failure("rows", shape, tuple(first.shape))
        self._kept = None if kept is None else kept.to(first.device)
        self._parts = Parts(self._tensors, self._kept)
        self.n, self.d = self._parts.n, self._parts.edges[-1]
        self.dtype, self.device = first.dtype, first.device
        self.layout = layout
        self.holders = holders
        self._n_columns = self.d if holders is ALONE else n_columns
        if layout is not None and (
            sum(layout.sizes) != self.d
            or not {0, *accumulate(layout.sizes)} >= set(self._parts.edges)
        ):
            sizes = [tensor[0].numel() for tensor in self._tensors]
            raise failure("rows", f"have the columns of their layout, {layout.sizes}", sizes)

    @property
    def n_columns(self) -> int:
        if self._n_columns is None:
            count = torch.tensor(float(self.d), dtype=torch.float64)
            self._n_columns = int(self.holders.sum(count))
        return self._n_columns

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors that hold the rows; copies if only some of their rows are used."""
        if self._kept is None:
            return tuple(self._tensors)
        return tuple(tensor[self._kept] for tensor in self._tensors)

    def __repr__(self) -> str:
        return f"DenseRows(n={self.n}, d={self.d}, dtype={self.dtype}, device={self.device})"

    @property
    def has_working_dtype(self) -> bool:
        """Whether products of the rows need no conversion: true for float32 and float64."""
        return self.dtype == _kernels.working_dtype(self.dtype)

    def gram(self, references: Sequence[Tensor] = (), row_weights: Tensor | None = None) -> Gram:
        return measure(self, references, row_weights)

    def lengths(self) -> Lengths:
        squares = self.squared_norms().cpu().double()
        if not norms_in_safe_range(squares, self.dtype):
            return self.gram()
        return CleanLengths(squares.sqrt(), torch.arange(self.n))

    def products(self, references: Tensor) -> Tensor:
        """[n + r, n + r] inner products of the rows and `references` [r, d] by a fast pass."""
        n, n_points = self.n, self.n + len(references)
        wide = _kernels.wide_dtype(self.device)
        total = torch.zeros(n_points, n_points, dtype=wide, device=self.device)
        with _kernels.full_precision():
            for at, piece in self._parts.working_pieces():
                total[:n, :n] += _kernels.products_among(piece)
                if len(references):
                    others = references[:, at].to(piece)
                    total[:n, n:] += _kernels.products_between(piece, others)
                    total[n:, n:] += _kernels.products_between(others, others)
        total[n:, :n] = total[:n, n:].T
        return self.holders.sum(total)

    def exact_products(self, references: Tensor, *, center: int | None, scale: float) -> Tensor:
        """[n + r, n + r] inner products of `scale * (x - c)` over rows and references, in float64.

        c is the row `center`, or zero for None. This is the careful pass: pieces are converted,
        scaled and shifted before they are multiplied, so that neither squares beyond float32's
        range nor a large part common to all rows reduce the accuracy of differences.
        """
        n_points, device = self.n + len(references), _kernels.wide_device(self.device)
        total = torch.zeros(n_points, n_points, dtype=torch.float64, device=device)
        for at, piece in self._parts.pieces(CACHED):
            both = [part.to(device, torch.float64) for part in (piece, references[:, at])]
            points = torch.cat(both).mul_(scale)
            if center is not None:
                points -= points[center].clone()
            total += points @ points.T
        return self.holders.sum(total)

    def magnitudes(self) -> Tensor:
        """[n] the largest absolute entry of each row; NaN or infinite where the row is."""
        return self.holders.max(self._largest())

    def are_equal(self, i: int, j: int) -> bool:
        """Whether two rows are equal in every column."""
        if self._kept is not None:
            i, j = int(self._kept[i]), int(self._kept[j])
        return self.holders.all(all(torch.equal(one[i], one[j]) for one in self._tensors))

    def _largest(self) -> Tensor:
        """The same over the columns that are here."""
        largest = torch.zeros(self.n, dtype=self.dtype, device=self.device)
        for _, piece in self._parts.pieces(CACHED):
            largest = torch.maximum(largest, piece.abs().amax(dim=1))
        return largest

    def finite(self) -> Tensor:
        return torch.isfinite(self.magnitudes()).cpu()

    def squared_norms(self) -> Tensor:
        """[n] squared norms of the rows."""
        total = torch.zeros(self.n, dtype=_kernels.wide_dtype(self.device), device=self.device)
        for _, piece in self._parts.working_pieces():
            total += _kernels.squared_norms(piece)
        return self.holders.sum(total)

    def combine(self, weights: Tensor, *, exact: bool = False) -> Tensor:
        used = torch.nonzero(weights)[:, 0]
        if len(used) == 0:
            return torch.zeros(self.d, dtype=self.dtype, device=self.device)
        if self._reads_all_of(used):
            out = self._combine(weights, exact)
            # A non-finite row of weight zero shows in the sum; then only the used rows are read.
            # Holders of other columns need not know: the result is the same sum.
            if len(used) == self.n or bool(torch.isfinite(out.sum())):
                return out
        return self.keep(used)._combine(weights[used], exact)

    def _reads_all_of(self, used: Tensor) -> bool:
        """Whether multiplying some rows by zero is cheaper than gathering the others."""
        # Not on an accelerator, where checking the sum would be one more wait.
        return len(used) == self.n or (2 * len(used) > self.n and self.device.type == "cpu")

    def _combine(self, weights: Tensor, exact: bool) -> Tensor:
        out = torch.empty(self.d, dtype=self.dtype, device=self.device)
        if exact:
            device = _kernels.wide_device(self.device)
            weights = weights.to(device, torch.float64)
            for at, piece in self._parts.pieces(CACHED):
                out[at] = (weights @ piece.to(device, torch.float64)).to(out)
            return out
        weights = weights.to(self.device, _kernels.working_dtype(self.dtype))
        with _kernels.full_precision():
            for at, piece in self._parts.working_pieces():
                # Half-precision rows are summed in float32 and rounded once.
                target = out[at] if piece.dtype == out.dtype else piece.new_empty(piece.shape[1])
                _kernels.weighted_sum(piece, weights, target)
                if piece.dtype != out.dtype:
                    out[at] = target
        return out

    def sweep(self, weights: Tensor, out: Tensor, *, with_row: int | None = None) -> Tensor:
        """Write the weighted sum z to `out` [d]; return inner products [n] of the rows with z.

        The products are with the row at `with_row` instead, if it is given.
        """
        weights = weights.to(self.device, self.dtype)
        total = torch.zeros(self.n, dtype=_kernels.wide_dtype(self.device), device=self.device)
        # A thread computes a tile: with fewer tiles than threads, some would wait (at n = 512 this
        # made sweeps 1.7 times as slow).
        n_tiles = max(torch.get_num_threads(), SWEPT // self.n // _kernels.TILE)
        width = n_tiles * _kernels.TILE
        with _kernels.full_precision():
            for at, piece in self._parts.working_pieces():
                chunks = piece.split(width, dim=1), out[at].split(width)
                for chunk, target in zip(*chunks, strict=True):
                    _kernels.weighted_sum(chunk, weights, target)
                    other = target if with_row is None else chunk[with_row]
                    total += _kernels.products_between(chunk, other[None])[:, 0]
        return self.holders.sum(total)

    def products_with_row(self, index: int) -> Tensor:
        """[n] inner products of all rows with the row at `index`."""
        total = torch.zeros(self.n, dtype=_kernels.wide_dtype(self.device), device=self.device)
        with _kernels.full_precision():
            for _, piece in self._parts.working_pieces():
                total += _kernels.products_between(piece, piece[index : index + 1])[:, 0]
        return self.holders.sum(total)

    def sampled_products(self, every: int) -> tuple[Tensor, float]:
        """[n, n] inner products estimated from about one column in `every`, always the same ones.

        Every tensor is sampled, and its products count for all of its columns. The second result is
        the share of columns that is sampled in the tensor where it is smallest.
        """
        wide = _kernels.wide_dtype(self.device)
        total = torch.zeros(self.n, self.n, dtype=wide, device=self.device)
        largest = 1.0
        with _kernels.full_precision():
            for _, piece in self._parts.working_pieces():
                sample, factor = _kernels.sampled_columns(piece, every)
                total += factor * _kernels.products_among(sample)
                largest = max(largest, factor)
        largest = float(self.holders.max(torch.tensor(largest, dtype=wide, device=self.device)))
        return self.holders.sum(total), 1.0 / largest

    @property
    def streamable(self) -> "DenseRows":
        return self

    @property
    def sections(self) -> tuple[int, ...]:
        if self.layout is not None:
            return self.layout.sizes
        return tuple(stop - start for start, stop in pairwise(self._parts.edges))

    def tile_norms(self, tiling: Tiling) -> Tensor:
        norms = self._parts.tile_norms(tiling)
        lengths = torch.linalg.vector_norm(norms, dim=1).double()
        # Below the limit, squares of usual entries were lost.
        smallest = 1e6 * torch.finfo(norms.dtype).tiny * self.d
        if bool(torch.isfinite(lengths).all()) and float(lengths.median()) ** 2 > smallest:
            return norms
        # Relative to the row's largest entry no square overflows, and none that counts underflows.
        wide = _kernels.wide_device(self.device)
        largest = self._largest().to(wide, torch.float64)
        norms = self._parts.tile_norms(tiling, largest.where(largest > 0, 1.0))
        return norms * largest[:, None]

    def tiles(self, tiling: Tiling, tiles: Tensor, factors: Tensor | None = None) -> Tensor:
        return self._parts.tiles(tiling, tiles, factors)

    def groups(self, tiling: Tiling, n_columns: int) -> Iterator[tuple[Piece, Tensor]]:
        for piece in tiling.groups(n_columns):
            yield piece, self._parts.tiled(piece)

    def keep(self, indices: Tensor) -> "DenseRows":
        indices = indices.to(self.device)
        kept = indices if self._kept is None else self._kept[indices]
        return DenseRows(
            self._tensors,
            layout=self.layout,
            holders=self.holders,
            n_columns=self._n_columns,
            kept=kept,
        )

    def chunks(self, width: int) -> Iterator[tuple[int, Tensor]]:
        for at, piece in self._parts.pieces(width * self.n):
            yield at.start, piece
