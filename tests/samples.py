"""Samplers of rows with a given property."""

from collections.abc import Callable

import torch
from torch import Tensor

from holdfast.seeds import stream

HOSTILE: dict[str, Callable[[Tensor], Tensor]] = {
    "nan": lambda rows: torch.full_like(rows, float("nan")),
    "one nan": lambda rows: rows.clone().index_fill_(1, torch.tensor([0]), float("nan")),
    "inf": lambda rows: torch.full_like(rows, float("inf")),
    "minus inf": lambda rows: torch.full_like(rows, float("-inf")),
    "1e30": lambda rows: 1e30 * rows,
    "1e30 aligned": lambda rows: torch.full_like(rows, 1.0, dtype=torch.float64).mul(1e30).to(rows),
    "growing": lambda rows: (
        rows * (10.0 ** (3.0 + 4.0 * torch.arange(len(rows)))).to(rows)[:, None]
    ),
    "1e-30": lambda rows: 1e-30 * rows,
    "minus 100": lambda rows: -100 * rows,
    "zero": torch.zeros_like,
}
"""Contents of bad rows, made from as many honest ones: magnitudes that have broken libraries."""


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
