"""What the attackers of one step see."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from holdfast.geometry import working_dtype

State = Tensor | None
"""What attackers carry from one step to the next."""


@dataclass(frozen=True, eq=False, kw_only=True)
class AttackContext:
    """The rows [n, d] of a step before the attack, who is bad (`mask` [n]), and what the attackers brought along.

    Honest rows are seen in units of `unit`, a power of two near their largest entry: no square of them overflows, in no dtype, and
    scaling loses nothing.
    """

    rows: Tensor
    mask: Tensor
    generator: torch.Generator | None
    state: State

    @cached_property
    def n_bad(self) -> int:
        """How many rows are bad."""
        return int(self.mask.sum())

    @property
    def n_honest(self) -> int:
        """How many rows are honest."""
        return len(self.rows) - self.n_bad

    @property
    def d(self) -> int:
        """How many columns the rows have."""
        return self.rows.shape[1]

    @property
    def own(self) -> Tensor:
        """[n_bad, d] what the bad rows would have sent, had they been honest, in the rows' dtype."""
        return self.rows[self.mask]

    @cached_property
    def unit(self) -> float:
        """A power of two, at most the largest finite absolute entry of the honest rows; 1 where they are zero."""
        entries = self.rows[~self.mask].abs()
        largest = float(entries.where(entries.isfinite(), 0.0).max())
        smallest = torch.finfo(self.dtype).tiny
        return max(smallest, math.ldexp(1.0, math.frexp(largest)[1] - 1)) if largest > 0 else 1.0

    @cached_property
    def honest(self) -> Tensor:
        """[n_honest, d] the honest rows divided by `unit`; float32, for float64 rows float64."""
        return self.rows[~self.mask].to(self.dtype) / self.unit

    @cached_property
    def mean(self) -> Tensor:
        """[d] the mean of the honest rows, divided by `unit`."""
        return self.honest.mean(0)

    @cached_property
    def spread(self) -> Tensor:
        """[d] the standard deviation (over n - 1) of the honest rows in each column, divided by `unit`; zero for a single row."""
        return self.honest.std(0) if self.n_honest > 1 else torch.zeros_like(self.mean)

    @property
    def dtype(self) -> torch.dtype:
        """In which attackers compute."""
        return working_dtype(self.rows.dtype)

    def normal(self) -> Tensor:
        """[n_bad, d] independent standard normal numbers."""
        return standard_normal((self.n_bad, self.d), self.generator, self.rows)


def standard_normal(
    shape: tuple[int, ...], generator: torch.Generator | None, like: Tensor
) -> Tensor:
    """Independent standard normal numbers, drawn where the generator is, for computing with tensors like `like`."""
    assert generator is not None
    return torch.randn(
        shape, generator=generator, device=generator.device, dtype=working_dtype(like.dtype)
    ).to(like.device)


def uniform(shape: tuple[int, ...], generator: torch.Generator | None, like: Tensor) -> Tensor:
    """Independent numbers, uniform in [0, 1), drawn where the generator is."""
    assert generator is not None
    return torch.rand(shape, generator=generator, device=generator.device).to(like.device)
