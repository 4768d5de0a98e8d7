"""Norms of rows: what rules may know that compare lengths and nothing else."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from holdfast.geometry._kernels import wide_device


class Lengths(Protocol):
    """Norms of the finite rows. A Gram matrix knows them; one light pass finds them alone."""

    @property
    def n(self) -> int: ...
    @property
    def kept(self) -> Tensor: ...
    @property
    def n_lost(self) -> int: ...
    @property
    def unit(self) -> float: ...
    @property
    def exact(self) -> bool: ...
    @property
    def norms(self) -> Tensor: ...
    def n_bad_left(self, n_bad: int) -> int: ...


@dataclass(frozen=True, eq=False)
class CleanLengths:
    """Norms [n] of rows that are all finite and of ordinary size, float64 on the CPU."""

    norms: Tensor
    kept: Tensor
    n_lost: int = 0
    unit: float = 1.0
    exact: bool = False

    @property
    def n(self) -> int:
        return len(self.norms)

    def n_bad_left(self, n_bad: int) -> int:
        return n_bad


def length(vector: Tensor) -> float:
    """The norm of a tensor; where squares may leave the range of its dtype, relative to its largest entry."""
    found = float(torch.linalg.vector_norm(vector))
    if 1e-15 < found < 1e15:
        return found
    largest = float(vector.abs().max())
    if largest == 0.0 or not largest < float("inf"):
        return largest
    return (
        float(
            torch.linalg.vector_norm(vector.to(wide_device(vector.device), torch.float64) / largest)
        )
        * largest
    )
