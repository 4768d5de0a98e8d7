from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.geometry import Block, Tiling
from holdfast.selectors._sampling import draw, inclusion_probabilities
from holdfast.selectors._selector import Tile, TileSelector


@final
@dataclass(frozen=True, kw_only=True)
class NormSampling(TileSelector):
    r"""Tiles drawn with probability proportional to their squared norm over all rows (active norm sampling).

    Exactly k tiles, tile j among them with probability :math:`\pi_j = \min(1, c\, s_j)`, where :math:`s_j = \sum_i \|a_{ij}\|^2`
    and c is such that the :math:`\pi_j` add up to k. With m tiles in all, :math:`E \|C_k(A) - A\|^2 \le (1 - k/m) \|A\|^2`, with equality for equal
    norms (the paper's Lemma 1; of the capped rows, if they are capped). Fewer than k tiles that hold anything: all of them, and the rest uniformly among the others.

    A row longer than the median row counts in :math:`s_j` as if it were as long as that one. Without this cap one row of 1e20
    drives every other probability to zero, and a second one can lie where nobody looks. `capped=False` is the paper's text.

    Args:
        fraction: the share of tiles, in (0, 1].
        count: their number, instead.
        tile: columns of a tile; "parameter" for whole parameters; None for 64, and fewer in models of less than 65,536 columns.
        capped: whether long rows are capped in the scores.

    Reference: the paper's Algorithm 2 and Lemma 1. Deviations: the cap; and a design of exact size whose inclusion probabilities are
    the ones stated, which drawing k times without replacement does not have.

    Example:
        >>> selector = NormSampling(count=2, tile=1)
        >>> scores = torch.tensor([9.0, 0.0, 0.5, 0.5, 0.0], dtype=torch.float64)
        >>> block = selector.select(selector.tiling((5,)), scores, step=0, generator=torch.Generator().manual_seed(0))
        >>> block.columns.tolist(), block.probabilities.tolist()
        ([0, 2], [1.0, 0.5])
    """

    fraction: float | None = None
    count: int | None = None
    tile: Tile = None
    capped: bool = True

    name = "norm-sampling"
    reaches_every_column = True

    def select(
        self, tiling: Tiling, scores: Tensor, *, step: int, generator: torch.Generator
    ) -> Block:
        probabilities = inclusion_probabilities(scores, self.n_chosen(tiling.n_tiles))
        tiles = draw(probabilities, generator)
        return Block(tiling, tiles, probabilities[tiles])
