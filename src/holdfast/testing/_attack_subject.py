"""An attack under test, and the rows that it is tested on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from holdfast.seeds import stream
from holdfast.threats import Attack, Knowledge, Rule, State

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
N, D, N_BAD = 9, 12, 3
SHAPES = ((2, 1, 1), (3, 30, 1), (9, 12, 3), (9, 1, 8), (12, 7, 11))
"""Numbers of rows, of columns and of bad rows."""

EXTREMES: dict[str, Callable[[Tensor], Tensor]] = {
    "NaN": lambda rows: torch.full_like(rows, torch.nan),
    "a column of NaN": lambda rows: rows.index_fill(1, torch.tensor([0]), torch.nan),
    "infinity": lambda rows: torch.full_like(rows, torch.inf),
    "minus infinity": lambda rows: torch.full_like(rows, -torch.inf),
    "1e30 times as large": lambda rows: 1e30 * rows,
    "growing by 1e4 from row to row": lambda rows: (
        rows * (10.0 ** (4.0 * torch.arange(len(rows)))).to(rows)[:, None]
    ),
    "1e-30 times as large": lambda rows: 1e-30 * rows,
    "zero": torch.zeros_like,
}
"""Rows, made from ordinary ones, that have broken attacks."""


@dataclass(frozen=True, kw_only=True)
class AttackSubject:
    """An attack, and how to call it."""

    attack: Attack
    rule: Rule | str
    dtypes: Sequence[torch.dtype]

    @property
    def dtype(self) -> torch.dtype:
        return self.dtypes[0]

    def rows(self, n: int = N, d: int = D, *, seed: int = 0, dtype: Any = None) -> Tensor:
        """[n, d] independent normal numbers."""
        drawn = torch.randn(n, d, generator=stream(seed, "rows"), dtype=torch.float64)
        return drawn.to(self.dtype if dtype is None else dtype)

    def known(self, d: int, seed: int = 0) -> Knowledge:
        """What every attack is given, the memory and the directions that this one needs."""
        names = sorted(self.attack.needs_directions)
        *vectors, memory = self.rows(len(names) + 1, d, seed=1)
        return {
            "generator": stream(seed, "attack"),
            "rule": self.rule,
            "memory": memory if "memory" in self.attack.needs else None,
            "directions": dict(zip(names, vectors, strict=True)),
        }

    def call(self, rows: Tensor, mask: Any, *, seed: int = 0, state: State = None) -> Tensor:
        return self.attack(rows, mask, state=state, **self.known(rows.shape[1], seed))

    def learn(self, rows: Tensor, mask: Any, state: State = None) -> State:
        return self.attack.learn(rows, mask, state, **self.known(rows.shape[1]))


def mask_of(n: int = N, n_bad: int = N_BAD) -> Tensor:
    """Bool [n] with `n_bad` bad rows at random places."""
    order = torch.randperm(n, generator=stream(0, "mask", n))
    return torch.zeros(n, dtype=torch.bool).index_fill_(0, order[:n_bad], True)
