"""Rows that stand in memory."""

from collections.abc import Callable, Iterator, Sequence
from typing import final

import torch
from torch import Tensor

from holdfast._checks import check_rows, failure
from holdfast._typing import TensorOrTensors
from holdfast.geometry import _kernels
from holdfast.geometry._columns import walk
from holdfast.geometry._gram import Gram
from holdfast.geometry._lengths import CleanLengths, Lengths
from holdfast.geometry._measure import are_tame, measure
from holdfast.geometry._rows import Rows

CACHED = 2**20
"""Entries of a piece that must be converted or gathered first, small enough to stay in the cache (4 MB of float32)."""


@final
class DenseRows(Rows):
    """One [n, d] tensor, or one [n, ...] tensor per parameter.

    Several tensors stand side by side, as if flattened and concatenated, but are never copied into one.

    Example:
        >>> rows = DenseRows([torch.ones(3, 2, 2), torch.zeros(3, 5)])
        >>> rows.n, rows.d
        (3, 9)
    """

    def __init__(self, tensors: TensorOrTensors) -> None:
        parts = check_rows(tensors)
        if isinstance(tensors, Tensor) and tensors.ndim != 2:
            raise failure("rows", "have shape [n, d] (or be a list of [n, ...] tensors)", tuple(tensors.shape))
        self._parts = [_as_wide_as_viewable(part.detach()) for part in parts if part[0].numel()]
        self._kept: Tensor | None = None
        self.n = parts[0].shape[0]
        self.d = sum(part[0].numel() for part in parts)
        self.dtype = parts[0].dtype
        self.device = parts[0].device

    def __repr__(self) -> str:
        return f"DenseRows(n={self.n}, d={self.d}, dtype={self.dtype}, device={self.device})"

    @property
    def has_working_dtype(self) -> bool:
        """Whether products of the rows need no conversion: float32 and float64, not half precision."""
        return self.dtype == _kernels.working_dtype(self.dtype)

    def gram(self, references: Sequence[Tensor] = (), row_weights: Tensor | None = None) -> Gram:
        return measure(self, references, row_weights)

    def lengths(self) -> Lengths:
        squares = self.squared_norms().cpu().double()
        if not are_tame(squares, self.d, self.dtype):
            return self.gram()
        return CleanLengths(squares.sqrt(), torch.arange(self.n))

    def products(self, references: Tensor) -> Tensor:
        """[n + r, n + r] inner products among the rows and `references` [r, d]: the first, fast pass."""
        n, n_points = self.n, self.n + len(references)
        total = torch.zeros(n_points, n_points, dtype=_kernels.wide_dtype(self.device), device=self.device)
        with _kernels.full_precision():
            for at, piece in self._working_pieces():
                total[:n, :n] += _kernels.products_between(piece, piece)
                if len(references):
                    others = references[:, at].to(piece)
                    total[:n, n:] += _kernels.products_between(piece, others)
                    total[n:, n:] += _kernels.products_between(others, others)
        total[n:, :n] = total[:n, n:].T
        return total

    def exact_products(self, references: Tensor, *, centre: int | None, scale: float) -> Tensor:
        """[n + r, n + r] inner products of `scale * (x - c)` over rows and references, in float64; c is row `centre`, or zero.

        The careful pass: pieces are converted, scaled and shifted before anything is multiplied, so that neither squares
        beyond float32's range nor a large part common to all rows can spoil the differences.
        """
        n_points, device = self.n + len(references), _kernels.wide_device(self.device)
        total = torch.zeros(n_points, n_points, dtype=torch.float64, device=device)
        for at, piece in self._pieces(CACHED):
            points = torch.cat([piece.to(device, torch.float64), references[:, at].to(device, torch.float64)]).mul_(scale)
            if centre is not None:
                points -= points[centre].clone()
            total += points @ points.T
        return total

    def magnitudes(self) -> Tensor:
        """[n] the largest absolute entry of each row; NaN or infinite where the row is."""
        largest = torch.zeros(self.n, dtype=self.dtype, device=self.device)
        for _, piece in self._pieces(CACHED):
            largest = torch.maximum(largest, piece.abs().amax(dim=1))
        return largest

    def map_columns(self, function: Callable[[Tensor], Tensor], width: int) -> tuple[Tensor, bool]:
        return walk(self.chunks(width), function, torch.empty(self.d, dtype=self.dtype, device=self.device))

    def finite(self) -> Tensor:
        return torch.isfinite(self.magnitudes()).cpu()

    def squared_norms(self) -> Tensor:
        """[n] squared norms of the rows."""
        total = torch.zeros(self.n, dtype=_kernels.wide_dtype(self.device), device=self.device)
        for _, piece in self._working_pieces():
            total += torch.linalg.vector_norm(piece, dim=1).to(total.dtype).square()
        return total

    def combine(self, weights: Tensor, *, exact: bool = False) -> Tensor:
        used = torch.nonzero(weights)[:, 0]
        if len(used) == 0:
            return torch.zeros(self.d, dtype=self.dtype, device=self.device)
        if self._reads_all_of(used):
            out = self._combine(weights, exact)
            if len(used) == self.n or bool(torch.isfinite(out.sum())):
                return out
        return self.keep(used)._combine(weights[used], exact)

    def _reads_all_of(self, used: Tensor) -> bool:
        """Whether it is cheaper to multiply some rows by zero than to gather the others.

        If that meets a row that is not finite, the sum shows it; on an accelerator, looking would be one more wait.
        """
        return len(used) == self.n or (2 * len(used) > self.n and self.device.type == "cpu")

    def _combine(self, weights: Tensor, exact: bool) -> Tensor:
        out = torch.empty(self.d, dtype=self.dtype, device=self.device)
        if exact:
            device = _kernels.wide_device(self.device)
            weights = weights.to(device, torch.float64)
            for at, piece in self._pieces(CACHED):
                out[at] = (weights @ piece.to(device, torch.float64)).to(out)
            return out
        weights = weights.to(self.device, _kernels.working_dtype(self.dtype))
        with _kernels.full_precision():
            for at, piece in self._working_pieces():
                # Half-precision rows are summed in float32 and rounded once.
                target = out[at] if piece.dtype == out.dtype else piece.new_empty(piece.shape[1])
                _kernels.weighted_sum(piece, weights, target)
                if piece.dtype != out.dtype:
                    out[at] = target
        return out

    def sweep(self, weights: Tensor, out: Tensor) -> Tensor:
        """Write the weighted sum z to `out` [d]; return the inner products [n] of all rows with z."""
        weights = weights.to(self.device, self.dtype)
        total = torch.zeros(self.n, dtype=_kernels.wide_dtype(self.device), device=self.device)
        with _kernels.full_precision():
            # Cutting the rows finer, so that the second product reads from the cache, was measured and does not pay.
            for at, piece in self._working_pieces():
                _kernels.weighted_sum(piece, weights, out[at])
                total += _kernels.products_between(piece, out[None, at])[:, 0]
        return total

    def columns(self, block: Tensor) -> "DenseRows":
        if len(block) == 0:
            raise failure("block", "hold at least one column", "none")
        edges = torch.tensor([at.start for at, _ in self._placed(CACHED)] + [self.d], device=block.device)
        cuts = torch.searchsorted(block, edges).tolist()
        placed = zip(self._placed(CACHED), cuts[:-1], cuts[1:], strict=True)
        picked = [matrix[:, block[first:last] - at.start] for (at, matrix), first, last in placed if last > first]
        gathered = torch.cat(picked, dim=1)
        return DenseRows(gathered if self._kept is None else gathered[self._kept])

    def keep(self, indices: Tensor) -> "DenseRows":
        kept = object.__new__(DenseRows)
        kept.__dict__.update(self.__dict__)
        indices = indices.to(self.device)
        kept._kept = indices if self._kept is None else self._kept[indices]
        kept.n = len(indices)
        return kept

    def chunks(self, width: int) -> Iterator[tuple[int, Tensor]]:
        for at, piece in self._pieces(width * self.n):
            yield at.start, piece

    def _working_pieces(self) -> Iterator[tuple[slice, Tensor]]:
        """Whole tensors where they can be used as they stand, else cached pieces in the dtype of products."""
        as_they_stand = self._kept is None and self.has_working_dtype
        for at, piece in self._pieces(None if as_they_stand else CACHED):
            yield at, piece.to(_kernels.working_dtype(self.dtype))

    def _pieces(self, n_entries: int | None) -> Iterator[tuple[slice, Tensor]]:
        """Matrices [n, c] of the kept rows, of about `n_entries` entries (None: as large as they stand), with their places."""
        for at, matrix in self._placed(n_entries):
            yield at, matrix if self._kept is None else matrix[self._kept]

    def _placed(self, n_entries: int | None) -> Iterator[tuple[slice, Tensor]]:
        """The same of all rows, kept or not: views wherever the tensors allow them."""
        start = 0
        for part in self._parts:
            # A tensor that cannot be viewed as a matrix is flattened piece by piece, never as a whole.
            whole = n_entries is None and part.ndim == 2
            width = part[0].numel() if whole else max(1, (n_entries or CACHED) // self.n)
            for matrix in _cut(part, width):
                yield slice(start, start + matrix.shape[1]), matrix
                start += matrix.shape[1]


def _as_wide_as_viewable(part: Tensor) -> Tensor:
    """[n, d] if the tensor's strides allow that view, else [n, a, b] to be flattened piece by piece."""
    n = part.shape[0]
    if part.ndim == 1:
        return part[:, None]
    try:
        return part.view(n, -1)
    except RuntimeError:
        return part


def _cut(part: Tensor, width: int) -> Iterator[Tensor]:
    """The tensor [n, ...] as matrices [n, at most width] from left to right."""
    if part.ndim == 2:
        yield from torch.split(part, width, dim=1)
        return
    inner = part[0, 0].numel()
    for slab in torch.split(part, max(1, width // max(1, inner)), dim=1):
        yield from torch.split(slab.flatten(1), width, dim=1)
