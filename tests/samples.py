"""Samplers of rows with a given property."""

import torch
from torch import Tensor

from holdfast.seeds import stream


def gaussian(n: int, d: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Independent normal entries: rows in general position, no ties, no structure."""
    return torch.randn(n, d, generator=stream(seed, "gaussian"), dtype=torch.float64).to(dtype)


def redundant(n: int, d: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Each row three times in succession, bit for bit, as a repetition code of group size 3."""
    return gaussian(-(-n // 3), d, seed, dtype).repeat_interleave(3, dim=0)[:n]


def common(
    n: int, d: int, ratio: float, seed: int = 0, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Rows that share a part `ratio` times as long as their spread.

    Uncentered float32 Gram matrices lose the spread.
    """
    shared = gaussian(1, d, seed + 1, torch.float64)
    return (ratio * shared + gaussian(n, d, seed, torch.float64)).to(dtype)
