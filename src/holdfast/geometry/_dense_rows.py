"""Rows in memory."""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import final

import torch
from torch import Tensor

from holdfast._typing import RowLayout, TensorOrTensors
from holdfast.checks import check_rows, failure
from holdfast.geometry import _kernels
from holdfast.geometry._gram import CleanLengths, Gram, Lengths
from holdfast.geometry._measure import measure, norms_in_safe_range
from holdfast.geometry._parts import CACHED, Parts
from holdfast.geometry._rows import Rows
from holdfast.geometry._tiling import Tiling

SWEPT = 2**21
"""Entries of the rows between two products of a sweep: the second one reads from the cache."""


@final
class DenseRows(Rows):
    """One [n, d] tensor, or one [n, ...] tensor per parameter.

    Several tensors act as one matrix, as if flattened and concatenated, but are never copied into
    one. A `layout` says which columns belong to which parameter; without one, each tensor counts as
    a parameter.

    Example:
        >>> rows = DenseRows([torch.ones(3, 2, 2), torch.zeros(3, 5)])
        >>> rows.n, rows.d
        (3, 9)
    """

    def __init__(self, tensors: TensorOrTensors, *, layout: RowLayout | None = None) -> None:
        parts = check_rows(tensors)
        self.tensors = tuple(parts)
        """The tensors that hold the rows."""
        if isinstance(tensors, Tensor) and tensors.ndim != 2:
            shape = "have shape [n, d] (or be a list of [n, ...] tensors)"
            raise failure("rows", shape, tuple(tensors.shape))
        self._parts = Parts.of(parts)
        self.n = parts[0].shape[0]
        self.d = self._parts.edges[-1]
        self.dtype = parts[0].dtype
        self.device = parts[0].device
        self.layout = layout
        if layout is not None and (
            sum(layout.sizes) != self.d
            or not {0, *accumulate(layout.sizes)} >= set(self._parts.edges)
        ):
            sizes = [part[0].numel() for part in parts]
            raise failure("rows", f"have the columns of their layout, {layout.sizes}", sizes)

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
        if not norms_in_safe_range(squares, self.d, self.dtype):
            return self.gram()
        return CleanLengths(squares.sqrt(), torch.arange(self.n))

    def products(self, references: Tensor) -> Tensor:
        """[n + r, n + r] inner products of the rows and `references` [r, d] by a fast pass."""
        n, n_points = self.n, self.n + len(references)
        wide = _kernels.wide_dtype(self.device)
        total = torch.zeros(n_points, n_points, dtype=wide, device=self.device)
        with _kernels.full_precision():
            for at, piece in self._parts.working_pieces():
                total[:n, :n] += _kernels.products_between(piece, piece)
                if len(references):
                    others = references[:, at].to(piece)
                    total[:n, n:] += _kernels.products_between(piece, others)
                    total[n:, n:] += _kernels.products_between(others, others)
        total[n:, :n] = total[:n, n:].T
        return total

    def exact_products(self, references: Tensor, *, center: int | None, scale: float) -> Tensor:
        """[n + r, n + r] inner products of `scale * (x - c)` over rows and references, in float64.

        c is the row `center`, or zero for None. This is the careful pass: pieces are converted,
        scaled and shifted before they are multiplied, so that neither squares beyond float32's
        range nor a large part common to all rows can spoil the differences.
        """
        n_points, device = self.n + len(references), _kernels.wide_device(self.device)
        total = torch.zeros(n_points, n_points, dtype=torch.float64, device=device)
        for at, piece in self._parts.pieces(CACHED):
            both = [part.to(device, torch.float64) for part in (piece, references[:, at])]
            points = torch.cat(both).mul_(scale)
            if center is not None:
                points -= points[center].clone()
            total += points @ points.T
        return total

    def matrix(self) -> Tensor:
        """[n, d] a copy of the rows in one tensor."""
        out = torch.empty(self.n, self.d, dtype=self.dtype, device=self.device)
        for at, piece in self._parts.pieces(None):
            out[:, at] = piece
        return out

    def magnitudes(self) -> Tensor:
        """[n] the largest absolute entry of each row; NaN or infinite where the row is."""
        largest = torch.zeros(self.n, dtype=self.dtype, device=self.device)
        for _, piece in self._parts.pieces(CACHED):
            largest = torch.maximum(largest, piece.abs().amax(dim=1))
        return largest

    def map_columns(self, function: Callable[[Tensor], Tensor], width: int) -> tuple[Tensor, bool]:
        out = torch.empty(self.d, dtype=self.dtype, device=self.device)
        return _kernels.map_chunks(self.chunks(width), function, out)

    def finite(self) -> Tensor:
        return torch.isfinite(self.magnitudes()).cpu()

    def squared_norms(self) -> Tensor:
        """[n] squared norms of the rows."""
        total = torch.zeros(self.n, dtype=_kernels.wide_dtype(self.device), device=self.device)
        for _, piece in self._parts.working_pieces():
            total += torch.linalg.vector_norm(piece, dim=1).to(total.dtype).square()
        return total

    def combine(self, weights: Tensor, *, exact: bool = False) -> Tensor:
        used = torch.nonzero(weights)[:, 0]
        if len(used) == 0:
            return torch.zeros(self.d, dtype=self.dtype, device=self.device)
        if self._reads_all_of(used):
            out = self._combine(weights, exact)
            # A non-finite row of weight zero shows in the sum; then only the used rows are read.
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

    def sweep(self, weights: Tensor, out: Tensor) -> Tensor:
        """Write the weighted sum z to `out` [d]; return inner products [n] of the rows with z."""
        weights = weights.to(self.device, self.dtype)
        total = torch.zeros(self.n, dtype=_kernels.wide_dtype(self.device), device=self.device)
        with _kernels.full_precision():
            for at, piece in self._parts.working_pieces():
                width = max(1, SWEPT // self.n // _kernels.TILE) * _kernels.TILE
                chunks = piece.split(width, dim=1), out[at].split(width)
                for chunk, target in zip(*chunks, strict=True):
                    _kernels.weighted_sum(chunk, weights, target)
                    total += _kernels.products_between(chunk, target[None])[:, 0]
        return total

    def products_with_row(self, index: int) -> Tensor:
        """[n] inner products of all rows with the row at `index`."""
        total = torch.zeros(self.n, dtype=_kernels.wide_dtype(self.device), device=self.device)
        with _kernels.full_precision():
            for _, piece in self._parts.working_pieces():
                total += _kernels.products_between(piece, piece[index : index + 1])[:, 0]
        return total

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
                total += factor * _kernels.products_between(sample, sample)
                largest = max(largest, factor)
        return total, 1.0 / largest

    def columns(self, block: Tensor) -> "DenseRows":
        if len(block) == 0:
            raise failure("block", "hold at least one column", "none")
        return DenseRows(self._parts.columns(block))

    @property
    def streamable(self) -> "DenseRows":
        return self

    @property
    def sections(self) -> tuple[int, ...]:
        if self.layout is not None:
            return self.layout.sizes
        return tuple(stop - start for start, stop in pairwise(self._parts.edges))

    def tile_norms(self, tiling: Tiling, *, careful: bool = False) -> Tensor:
        if not careful:
            return self._parts.tile_norms(tiling)
        # Relative to the row's largest entry no square overflows, and none that counts underflows.
        largest = self.magnitudes().to(_kernels.wide_device(self.device), torch.float64)
        norms = self._parts.tile_norms(tiling, largest.where(largest > 0, 1.0))
        return norms * largest[:, None]

    def tile_products(self, tiling: Tiling, weights: Tensor, vector: Tensor) -> Tensor:
        used = torch.nonzero(weights)[:, 0]
        rows = self if len(used) == self.n else self.keep(used)
        return rows._parts.tile_products(tiling, weights[used], vector)

    def tiles(self, tiling: Tiling, tiles: Tensor, factors: Tensor | None = None) -> Tensor:
        return self._parts.tiles(tiling, tiles, factors)

    def keep(self, indices: Tensor) -> "DenseRows":
        kept = object.__new__(DenseRows)
        kept.__dict__.update(self.__dict__)
        kept._parts = self._parts.keep(indices)
        kept.n = len(indices)
        return kept

    def chunks(self, width: int) -> Iterator[tuple[int, Tensor]]:
        for at, piece in self._parts.pieces(width * self.n):
            yield at.start, piece
