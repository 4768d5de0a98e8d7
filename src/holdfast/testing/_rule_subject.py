"""A rule under test, and the rows that it is tested on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from holdfast.aggregators import Aggregate, Aggregator
from holdfast.seeds import stream

TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Allowed difference, relative to the rows; the solver's own tolerance is 1e-6 of the objective."""

N, D = 15, 23
"""Enough rows for Bulyan with three bad ones, and whole groups of three."""

HOSTILE: dict[str, Callable[[Tensor], Tensor]] = {
    "NaN": lambda rows: torch.full_like(rows, torch.nan),
    "one NaN": lambda rows: rows.clone().index_fill_(1, torch.tensor([0]), torch.nan),
    "infinity": lambda rows: torch.full_like(rows, torch.inf),
    "minus infinity": lambda rows: torch.full_like(rows, -torch.inf),
    "1e30 times as large": lambda rows: 1e30 * rows,
    "1e30 in every entry": lambda rows: (
        torch.ones_like(rows, dtype=torch.float64).mul(1e30).to(rows)
    ),
    # Squares of such lengths are still finite in float64, their squares are not.
    "1e100 in every entry": lambda rows: (
        torch.ones_like(rows, dtype=torch.float64).mul(1e100).to(rows)
    ),
    "growing by 1e4 from row to row": lambda rows: (
        rows * (10.0 ** (3.0 + 4.0 * torch.arange(len(rows)))).to(rows)[:, None]
    ),
    "1e-30 times as large": lambda rows: 1e-30 * rows,
    "minus 100 times as large": lambda rows: -100 * rows,
    "zero": torch.zeros_like,
}
"""Contents of bad rows, made from as many honest ones: magnitudes that have broken libraries."""


class Sampler(Protocol):
    """Draws honest rows [n, d] in this dtype, the same for the same seed."""

    def __call__(
        self, n: int, d: int, seed: int = 0, dtype: torch.dtype = torch.float32
    ) -> Tensor: ...


def normal_rows(n: int, d: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Independent normal entries: rows in general position, without ties or structure."""
    return torch.randn(n, d, generator=stream(seed, "gaussian"), dtype=torch.float64).to(dtype)


@dataclass(frozen=True, kw_only=True)
class RuleSubject:
    """A rule, how to draw rows for it, and what to pass besides the rows."""

    rule: Aggregator
    rows: Sampler
    arguments: Callable[[Tensor], Mapping[str, Any]]
    lacks: Mapping[str, str]

    def aggregate(self, rows: Any, honest: Tensor | None = None) -> Aggregate:
        """The aggregate; the arguments are made from the honest rows."""
        known = rows if honest is None else honest
        return self.rule.aggregate(rows, **self.arguments(known))

    def call(self, rows: Any, honest: Tensor | None = None) -> Tensor:
        return self.aggregate(rows, honest).vector


def is_close(a: Tensor, b: Tensor) -> bool:
    """Whether two vectors differ by no more than the tolerance of the first one's dtype."""
    return bool((a.double() - b.double()).norm() <= TOLERANCE[a.dtype] * a.numel() ** 0.5)
