"""Tensors [n, ...] side by side, read as matrices [n, c] without copying more than a piece."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from holdfast.geometry import _kernels
from holdfast.geometry._tiling import Piece, Tiling

CACHED = 2**20
"""Entries of a piece that is converted or gathered first: 4 MB of float32, to stay in the cache."""


class Parts:
    """The columns of several tensors [n, ...], as if flattened; of all rows or those at `kept`."""

    def __init__(self, tensors: Sequence[Tensor], kept: Tensor | None) -> None:
        first = tensors[0]
        # Each as a matrix if its strides allow that view.
        self._tensors = [_as_matrix(tensor.detach()) for tensor in tensors if tensor[0].numel()]
        self._kept = kept
        self.edges = [0, *accumulate(tensor[0].numel() for tensor in self._tensors)]
        self.n = first.shape[0] if kept is None else len(kept)
        self.dtype, self.device = first.dtype, first.device

    @property
    def need_no_copy(self) -> bool:
        """Whether products can use the tensors directly."""
        return self._kept is None and self.dtype == _kernels.working_dtype(self.dtype)

    def working_pieces(self) -> Iterator[tuple[slice, Tensor]]:
        """Whole tensors if products can use them directly, else cached pieces in working dtype."""
        for at, piece in self.pieces(None if self.need_no_copy else CACHED):
            yield at, piece.to(_kernels.working_dtype(self.dtype))

    def pieces(self, n_entries: int | None) -> Iterator[tuple[slice, Tensor]]:
        """Places and matrices [n, c] of the kept rows, of about `n_entries` each (None: whole)."""
        for at, matrix in self._placed(n_entries):
            yield at, matrix if self._kept is None else matrix[self._kept]

    def _placed(self, n_entries: int | None) -> Iterator[tuple[slice, Tensor]]:
        """The same of all rows, kept or not: views wherever the tensors allow them."""
        start = 0
        for tensor in self._tensors:
            # A tensor that cannot be viewed as a matrix is flattened by pieces, never as a whole.
            whole = n_entries is None and tensor.ndim == 2
            width = tensor[0].numel() if whole else max(1, (n_entries or CACHED) // self.n)
            for matrix in _cut(tensor, width):
                yield slice(start, start + matrix.shape[1]), matrix
                start += matrix.shape[1]

    def tiles(self, tiling: Tiling, tiles: Tensor, factors: Tensor | None = None) -> Tensor:
        """[n, k] a copy of the columns of these `tiles` (increasing), times their `factors`."""
        tiles = tiles.to(self.device)
        factors = None if factors is None else factors.to(self.device, self.dtype)
        if not all(tensor.ndim == 2 for tensor in self._tensors):
            columns = self._columns(tiling.columns(tiles))
            return columns if factors is None else columns.mul_(tiling.expand(factors, tiles))
        out = torch.empty(self.n, tiling.n_columns(tiles), dtype=self.dtype, device=self.device)
        rows = range(self.n) if self._kept is None else self._kept.tolist()
        start = 0
        for piece, local, at in tiling.split(tiles):
            tensor, offset = self._holder_of(piece)
            columns = tensor[:, piece.start - offset : piece.stop - offset]
            tiled = columns.unfold(1, piece.width, piece.width)
            stop = start + len(local) * piece.width
            target = out[:, start:stop].unfold(1, piece.width, piece.width)
            # Row by row is twice as fast as indexing all rows at once, and the factors are applied
            # while the row is in the cache.
            for i, row in enumerate(rows):
                torch.index_select(tiled[row], 0, local, out=target[i])
                if factors is not None:
                    target[i].mul_(factors[at, None])
            start = stop
        return out

    def tile_norms(self, tiling: Tiling, relative_to: Tensor | None = None) -> Tensor:
        """[n, n_tiles] norms over each tile; of rows divided by `relative_to` [n], in its dtype."""
        norm = torch.linalg.vector_norm
        dtype = _kernels.working_dtype(self.dtype) if relative_to is None else relative_to.dtype
        device = self.device if relative_to is None else relative_to.device
        if relative_to is None and self._can_be_viewed:
            norms = torch.empty(self.n, tiling.n_tiles, dtype=dtype, device=device)
            for piece in tiling.pieces:
                at = slice(piece.first, piece.first + piece.n_tiles)
                norm(self.tiled(piece), dim=2, out=norms[:, at])
            return norms
        norms = torch.zeros(self.n, tiling.n_tiles, dtype=dtype, device=device)
        for piece in tiling.pieces:
            for part in piece.cut(max(1, CACHED // self.n)):
                tiled = self.tiled(part).to(norms)
                if relative_to is not None:
                    tiled = tiled / relative_to[:, None, None]
                at = slice(part.first, part.first + part.n_tiles)
                # A wide tile is read in several parts, whose norms add up as a hypotenuse.
                norms[:, at] = norms[:, at].hypot(norm(tiled, dim=2))
        return norms

    def _columns(self, block: Tensor) -> Tensor:
        """[n, k] a copy of the columns `block` [k], in increasing order."""
        starts = [at.start for at, _ in self._placed(CACHED)] + [self.edges[-1]]
        cuts = torch.searchsorted(block, torch.tensor(starts, device=block.device)).tolist()
        placed = zip(self._placed(CACHED), cuts[:-1], cuts[1:], strict=True)
        picked = [
            matrix[:, block[first:last] - at.start]
            for (at, matrix), first, last in placed
            if last > first
        ]
        gathered = torch.cat(picked, dim=1)
        return gathered if self._kept is None else gathered[self._kept]

    @property
    def _can_be_viewed(self) -> bool:
        return self.need_no_copy and all(tensor.ndim == 2 for tensor in self._tensors)

    def tiled(self, piece: Piece) -> Tensor:
        """[n, n_tiles, width] the columns of the piece by tile; a view if possible."""
        return self._between(piece).unfold(1, piece.width, piece.width)

    def _between(self, piece: Piece) -> Tensor:
        """[n, c] the columns of the piece, which lies within one tensor; a view if possible."""
        tensor, offset = self._holder_of(piece)
        start, stop = piece.start - offset, piece.stop - offset
        if tensor.ndim > 2:  # flatten only the slab that holds the piece
            inner = tensor[0, 0].numel()
            first = start // inner
            slab = tensor[:, first : -(-stop // inner)].flatten(1)
            matrix = slab[:, start - first * inner : stop - first * inner]
        else:
            matrix = tensor[:, start:stop]
        return matrix if self._kept is None else matrix[self._kept]

    def _holder_of(self, piece: Piece) -> tuple[Tensor, int]:
        """The tensor that holds the piece, and the column at which it begins."""
        at = bisect_right(self.edges, piece.start) - 1
        return self._tensors[at], self.edges[at]


def _as_matrix(tensor: Tensor) -> Tensor:
    """[n, d] if the tensor's strides allow that view, else the tensor unchanged."""
    if tensor.ndim == 1:
        return tensor[:, None]
    try:
        return tensor.view(tensor.shape[0], -1)
    except RuntimeError:
        return tensor


def _cut(tensor: Tensor, width: int) -> Iterator[Tensor]:
    """The tensor [n, ...] as matrices [n, at most width] from left to right."""
    if tensor.ndim == 2:
        yield from torch.split(tensor, width, dim=1)
        return
    inner = tensor[0, 0].numel()
    for slab in torch.split(tensor, max(1, width // max(1, inner)), dim=1):
        yield from torch.split(slab.flatten(1), width, dim=1)
