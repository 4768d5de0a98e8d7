from dataclasses import dataclass
from typing import final

from torch import Generator, Tensor

from holdfast.geometry import Block, Tiling
from holdfast.selectors._sampling import draw, inclusion_probabilities
from holdfast.selectors._selector import TileSelector, selectors


@final
@selectors.register
@dataclass(frozen=True, kw_only=True)
class NormSampling(TileSelector):
    r"""Tiles drawn in proportion to their squared norm (active norm sampling).

    Draws exactly k tiles, tile j with probability :math:`\pi_j = \min(1, c\, s_j)`, where
    :math:`s_j` is its squared norm, over all rows :math:`\sum_i \|a_{ij}\|^2`, and c is such that
    the :math:`\pi_j` add up to k. With m tiles in all,
    :math:`E \|C_k(A) - A\|^2 \le (1 - k/m) \|A\|^2`, with equality for equal norms (the paper's
    Lemma 1; of the capped rows, if they are capped). If fewer than k tiles are nonzero, it takes
    all of them, and the rest uniformly among the others.

    Over rows, one longer than the median row counts as if it had the median length. Without
    this cap one row of 1e20 drives every other probability to zero, and a second bad row can hide
    in the other columns. `capped=False` is the paper's text. See :class:`TileSelector` for the
    other arguments.

    Reference: the paper's Algorithm 2 and Lemma 1. Deviations: the cap; and a design of fixed size
    with exactly the stated inclusion probabilities, which k draws without replacement do not have.

    Example:
        >>> selector, generator = NormSampling(count=2, tile=1), torch.Generator().manual_seed(0)
        >>> norms = torch.tensor([3.0, 0.0, 0.5, 0.5, 0.0], dtype=torch.float64)
        >>> block = selector.select(selector.tiling((5,)), norms, step=0, generator=generator)
        >>> block.columns.tolist(), block.probabilities.tolist()
        ([0, 2], [1.0, 0.5])
    """

    capped: bool = True

    name = "norm-sampling"

    def select(self, tiling: Tiling, norms: Tensor, *, step: int, generator: Generator) -> Block:
        largest = norms.max()
        relative = (norms / largest.where(largest > 0, 1.0)).cpu().double()
        k = self.n_chosen(tiling.n_tiles)
        probabilities = inclusion_probabilities(relative.square(), k)
        tiles = draw(probabilities, generator)
        return Block(tiling, tiles, probabilities[tiles])
