from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor

from holdfast.geometry import Block, Tiling
from holdfast.selectors._selector import TileSelector, selectors

SAMPLE = 2**14
"""Magnitudes from which a threshold is estimated."""

ENOUGH = 256
"""Magnitudes of the sample that must lie above the threshold: it then finds k to a few percent."""


@final
@selectors.register
@dataclass(frozen=True, kw_only=True)
class TopNorm(TileSelector):
    r"""The k tiles of largest norm: the Gauss-Southwell rule.

    Deterministic; of equal norms it takes the first. Among more than 65,536 single columns of a
    vector, k is kept to a few percent, ten at most. Over rows it can be predicted, so an attacker
    knows which columns are not chosen; with `capped`, a row longer than the median row counts as
    that one. See :class:`TileSelector` for the other arguments.

    Reference: Nutini et al., *Coordinate Descent Converges Faster with the Gauss-Southwell Rule
    Than Random Selection* (ICML 2015), equation 3.

    Example:
        >>> selector, tiling = TopNorm(count=2, tile=1), Tiling((4,), 1)
        >>> norms = torch.tensor([3.0, 9.0, 1.0, 4.0])
        >>> selector.select(tiling, norms, step=0, generator=torch.Generator()).columns
        tensor([1, 3])
    """

    capped: bool = True

    name = "top-norm"

    def select(self, tiling: Tiling, norms: Tensor, *, step: int, generator: Generator) -> Block:
        k = self.n_chosen(tiling.n_tiles)
        return Block(tiling, largest(norms, k).cpu())

    def threshold(self, vector: Tensor) -> float | None:
        if self.tile != 1 or len(vector) <= 4 * SAMPLE:
            return None
        # An odd stride does not fall in step with layers, whose widths are mostly even.
        sample = vector[:: (len(vector) // SAMPLE) | 1].abs()
        k = round(self.n_chosen(len(vector)) * len(sample) / len(vector))
        if not ENOUGH <= k < len(sample):
            return None
        return float(sample.kthvalue(len(sample) - k).values)

    def is_right_number(self, n_found: int, n_columns: int) -> bool:
        k = self.n_chosen(n_columns)
        return 0.9 * k <= n_found <= 1.1 * k


def largest(values: Tensor, k: int) -> Tensor:
    """Positions of the k largest values [m], increasing; of equal ones the first."""
    candidates = _candidates(values, k)
    found = values if candidates is None else values[candidates]
    threshold = found.kthvalue(len(found) - k + 1).values
    above = torch.nonzero(found > threshold)[:, 0]
    equal = torch.nonzero(found == threshold)[: k - len(above), 0]
    chosen = torch.cat([above, equal]).sort().values if len(equal) else above
    return chosen if candidates is None else candidates[chosen]


def _candidates(values: Tensor, k: int) -> Tensor | None:
    """Positions of at least k values, among them the k largest; None for all."""
    m = len(values)
    if m <= 4 * SAMPLE or 2 * k > m:
        return None
    # Selecting among all values takes as long as a mean of the rows. A sample gives a threshold
    # that a little more than k of them exceed: three standard deviations of its count.
    sample = values[:: m // SAMPLE]
    share = k / m + 3 * (k / m / len(sample)) ** 0.5
    rank = min(len(sample), int(share * len(sample)) + 1)
    threshold = sample.kthvalue(len(sample) - rank + 1).values
    found = torch.nonzero(values >= threshold)[:, 0]
    return found if k <= len(found) <= m // 2 else None
