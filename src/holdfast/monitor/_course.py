"""Lengths and directions of the rows relative to each other, over time."""

import math
from typing import Any, final

import torch
from torch import Tensor

LONGER = math.log(1.25)
"""Change of a row's length, relative to the other rows', that may make it suspect."""

TURNED = 0.2
"""Change of a row's cosine with the other rows that may make it suspect."""

SHORTEST = -5.0
"""Log of the relative length of a row of zeros, and of all rows that are shorter."""

LIMITS = torch.tensor([[LONGER], [TURNED]], dtype=torch.float64)
"""Least changes that make a row suspect: of its log length, and of its cosine with the others."""


@final
class Course:
    """The figures of every row over time: the recent steps, and mean and variance before them."""

    def __init__(self, n: int, window: int) -> None:
        self._horizon = 2.0 * window
        self._n_seen = torch.zeros(n, dtype=torch.int64)
        self._recent = torch.full((window // 2, 2, n), torch.nan, dtype=torch.float64)  # rings
        self._mean = torch.zeros(2, n, dtype=torch.float64)
        self._variance = torch.zeros(2, n, dtype=torch.float64)
        self._count = torch.zeros(2, n, dtype=torch.float64)

    def grow(self, n: int) -> None:
        """Make room for n rows."""
        self._n_seen = widened(self._n_seen, n, 0)
        self._recent = widened(self._recent, n, torch.nan)
        self._mean, self._variance = widened(self._mean, n, 0.0), widened(self._variance, n, 0.0)
        self._count = widened(self._count, n, 0.0)

    def add(self, figures: Tensor, rows: Tensor) -> None:
        """Take in the figures [2, k] of one step for k of the rows, NaN where there is none."""
        at = self._n_seen[rows] % len(self._recent)
        oldest = self._recent[at, :, rows].T
        has_one = ~oldest.isnan()
        mean, variance, count = self._mean[:, rows], self._variance[:, rows], self._count[:, rows]
        # All past steps count equally at first, and a step counts less and less later.
        share = (1 / (count + 1)).clamp(min=1 / self._horizon) * has_one
        step = torch.where(has_one, oldest - mean, 0.0)
        self._variance[:, rows] = (1 - share) * (variance + share * step**2)
        self._mean[:, rows] = mean + share * step
        self._count[:, rows] = count + has_one
        self._recent[at, :, rows] = figures.T
        self._n_seen[rows] += 1

    def changes(self, certain: float) -> Tensor:
        """[2, n] the changes of the recent means; 0 where they are small or may be chance."""
        n_recent = (~self._recent.isnan()).sum(0)
        recent = self._recent.nansum(0) / n_recent
        change = recent - self._mean
        are_large = change.abs() > LIMITS
        if not bool(are_large.any()):  # nearly always, and what follows takes as long as the rest
            return torch.zeros_like(change)
        spread = (self._recent - recent).square().nanmean(0)
        error = (spread / n_recent + self._variance / self._count.clamp(max=self._horizon)).sqrt()
        enough = (2 * n_recent >= len(self._recent)) & (self._count >= len(self._recent))
        return torch.where(enough & are_large & (change.abs() > certain * error), change, 0.0)

    def state_dict(self) -> dict[str, Any]:
        return {
            "n_seen": self._n_seen.clone(),
            "recent": self._recent.clone(),
            "mean": self._mean.clone(),
            "variance": self._variance.clone(),
            "count": self._count.clone(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._n_seen, self._recent = state["n_seen"].clone(), state["recent"].clone()
        self._mean, self._variance = state["mean"].clone(), state["variance"].clone()
        self._count = state["count"].clone()


def widened(tensor: Tensor, n: int, value: float) -> Tensor:
    """The tensor with n entries in its last dimension, of which the new ones are `value`."""
    new = tensor.new_full((*tensor.shape[:-1], n - tensor.shape[-1]), value)
    return torch.cat([tensor, new], dim=-1)


def figures(products: Tensor, rejected: Tensor) -> Tensor:
    """[2, n] log of the relative length, and cosine with the others; NaN where there is none."""
    nothing = torch.full((2, len(products)), torch.nan, dtype=torch.float64)
    finite = torch.nonzero(torch.isfinite(products.diagonal()))[:, 0]
    if len(finite) < 2:
        return nothing
    among = products if len(finite) == len(products) else products[finite][:, finite]
    squares = among.diagonal().clamp(min=0)
    norms = squares.sqrt()
    usual = norms.median()
    if not bool(usual > 0):
        return nothing
    lengths = (norms / usual).log().clamp(SHORTEST, -SHORTEST)

    # The others are those that were not rejected, each with length 1: a wild row would hide behind
    # itself, and a long one would make the others look turned.
    weights = ~rejected[finite] / norms.clamp(min=float(usual) * math.exp(SHORTEST))
    with_all = among @ weights
    with_others = with_all - weights * squares
    # The square of the sum of the others is that of the whole sum without the row's own terms.
    square = weights @ with_all - weights * (with_all + with_others)
    cosines = (with_others / (norms * square.clamp(min=0).sqrt())).clamp(-1, 1)
    return nothing.index_copy(1, finite, torch.stack([lengths, cosines]))
