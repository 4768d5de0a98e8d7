"""Passes over the columns of a matrix [n, c]: inner products, weighted sums, functions of chunks.

Products cut the columns into tiles and pass all tiles to one batched product, so that several cores
work on tiles that fit their caches. At n = 10 this is three times as fast as one tall product, and
it keeps float32 sums short: the results of the tiles are added in float64.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

TILE = 4096
"""Columns of a weighted sum that are computed at once."""

SUMMED = 1024
"""Terms of a float32 inner product before it is added in float64.

Equal terms all round the same way: for constant rows the error is 3e-6 of the norms at 1024 terms,
and 1.5e-5 at 4096.
"""

SQUARED = 256
"""Squares that are summed in float32 before they are added in float64."""

BLOCK = 64
"""Rows that are multiplied with all later rows at once: at n = 512 this saves a third."""

WINDOW = 64
"""Adjacent columns of a sample: a few cache lines."""

DRIFT = 37
"""What a step from window to window has beyond a multiple of `WINDOW`."""


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of products: half precision would round each of them to three digits."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def wide_dtype(device: torch.device) -> torch.dtype:
    """The widest dtype of the device, in which sums are accumulated."""
    return torch.float32 if device.type == "mps" else torch.float64


def wide_device(device: torch.device) -> torch.device:
    """The device for float64 work on pieces: the CPU if `device` has no float64."""
    return device if wide_dtype(device) is torch.float64 else torch.device("cpu")


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    """Form products in true float32, whatever `torch.set_float32_matmul_precision` is set to."""
    # TF32 would cost four digits.
    chosen = torch.get_float32_matmul_precision()
    if chosen == "highest":
        yield
        return
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(chosen)


def _tiles(matrix: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The matrix as a view [tiles, n, width], and the columns [n, rest] after the last tile."""
    whole = matrix.shape[1] // width * width
    if whole == 0:
        return matrix.new_empty(0, matrix.shape[0], width), matrix
    return matrix[:, :whole].unfold(1, width, width).transpose(0, 1), matrix[:, whole:]


def sampled_columns(matrix: Tensor, every: int) -> tuple[Tensor, float]:
    """[n, k] windows with about one column in `every`, and how many columns each stands for."""
    n, width = matrix.shape
    if width <= WINDOW:
        return matrix, 1.0
    # Layers have widths that are multiples of 64. With a step that is one as well, each window
    # would show the same inputs of a layer.
    windows = matrix.unfold(1, WINDOW, WINDOW * every + DRIFT)
    sample = windows.reshape(n, -1)
    return sample, width / sample.shape[1]


def products_between(left: Tensor, right: Tensor) -> Tensor:
    """[n, m] inner products of the rows of `left` [n, c] and `right` [m, c], summed wide."""
    if len(right) < len(left):  # a batched product is faster with its short side first
        return products_between(right, left).T
    wide = wide_dtype(left.device)
    # The results of the tiles [tiles, n, m] take m / width of the rows' memory: at most an eighth.
    width = max(SUMMED, 8 * len(right))
    left_tiles, left_rest = _tiles(left, width)
    right_tiles, right_rest = _tiles(right, width)
    whole = torch.bmm(left_tiles, right_tiles.transpose(1, 2)).sum(0, dtype=wide)
    return whole + (left_rest @ right_rest.T).to(wide)


def squared_norms(matrix: Tensor) -> Tensor:
    """[n] squared norms of the rows of the matrix [n, c], summed wide."""
    wide = wide_dtype(matrix.device)
    whole = matrix.shape[1] // SQUARED * SQUARED
    rest = matrix[:, whole:]
    total: Tensor = torch.linalg.vector_norm(rest, dim=1).to(wide).square()
    if whole:
        tiles = matrix[:, :whole].unfold(1, SQUARED, SQUARED)  # row by row, as they are stored
        total += torch.linalg.vector_norm(tiles, dim=2).to(wide).square_().sum(1)
    return total


def products_among(matrix: Tensor) -> Tensor:
    """[n, n] inner products of the rows of the matrix [n, c], summed wide."""
    n = len(matrix)
    total = torch.empty(n, n, dtype=wide_dtype(matrix.device), device=matrix.device)
    # One triangle by blocks of rows. Smaller blocks save more products, but these get slow.
    for first in range(0, n, BLOCK):
        block = slice(first, first + BLOCK)
        found = products_between(matrix[block], matrix[first:])
        total[block, first:], total[first:, block] = found, found.T
    return total


def weighted_sum(matrix: Tensor, weights: Tensor, out: Tensor) -> None:
    """Write the sum of `weights[i] * matrix[i]` to `out` [c], all of one dtype."""
    tiles, rest = _tiles(matrix, TILE)
    whole = len(tiles) * TILE
    if whole:
        torch.bmm(weights.expand(len(tiles), 1, -1), tiles, out=out[:whole].view(-1, 1, TILE))
    if rest.shape[1]:
        torch.mv(rest.T, weights, out=out[whole:])


def map_chunks(
    chunks: Iterable[tuple[int, Tensor]], function: Callable[[Tensor], Tensor], out: Tensor
) -> bool:
    """Write `function` of each chunk to its columns of `out`; return whether the sum is finite."""
    # Any non-finite entry makes the sum over all entries non-finite. The sum costs a fraction of an
    # order statistic, and one transfer to the host.
    dtype = working_dtype(out.dtype)
    checksum = torch.zeros((), dtype=dtype, device=out.device)
    for start, chunk in chunks:
        checksum += chunk.sum(dtype=dtype)
        out[start : start + chunk.shape[1]] = function(chunk.to(dtype))
    return bool(torch.isfinite(checksum))
