"""A walk over column chunks that also learns whether they are finite."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from holdfast.geometry._kernels import working_dtype


def walk(
    chunks: Iterable[tuple[int, Tensor]], function: Callable[[Tensor], Tensor], out: Tensor
) -> tuple[Tensor, bool]:
    """Write `function` of each chunk [n, c] to its place in `out` [d]; and whether the sum over all entries is finite.

    That an entry is not finite shows on the sum, which costs a fraction of any order statistic. One transfer to the host.
    """
    dtype = working_dtype(out.dtype)
    checksum = torch.zeros((), dtype=dtype, device=out.device)
    for start, chunk in chunks:
        checksum += chunk.sum(dtype=dtype)
        out[start : start + chunk.shape[1]] = function(chunk.to(dtype))
    return out, bool(torch.isfinite(checksum))
