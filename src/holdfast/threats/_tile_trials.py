from collections.abc import Iterator
from copy import copy
from typing import final

import torch
from torch import Tensor

from holdfast.aggregators import Aggregator, Blockwise, GeometricMedian, NearestNeighborMixing
from holdfast.geometry import DenseRows, Tiling, full_precision, products_between
from holdfast.threats._attack_context import AttackContext

WIDE = 4096
"""Tiles with more columns are multiplied one by one, in their own precision."""

ENTRIES = 2**21
"""Entries of the vectors that are multiplied together."""

TILES = 256
"""Tiles that are searched together: the Gram matrices of their trials take some 20 MB."""


@final
class TileTrials:
    r"""Tries out what a rule returns in each tile if bad rows send combinations of a few vectors.

    In each tile, bad row i is :math:`\mu + \sum_k c_{ik} p_k`, where :math:`\mu` is the mean of the
    honest rows and :math:`p_k` are the `vectors`, restricted to the columns of the tile; the
    coefficients may differ from tile to tile. The inner products of honest rows, vectors and mean
    in every tile are read once. A trial in all tiles is one call of `weights_from_grams`.

    Args:
        context: with a :class:`Blockwise` rule; its honest rows must have a finite mean.
        vectors: [r, d] in multiples of `context.unit`.
    """

    def __init__(self, context: AttackContext, vectors: Tensor) -> None:
        tiling = context.tiling
        assert isinstance(context.rule, Blockwise)
        assert tiling is not None
        self._rule: Aggregator = context.rule.inner
        self._row_weights = context.rule_arguments.get("row_weights")
        self._mask = context.mask.cpu()
        known = torch.cat([context.deviations, vectors, context.mean[None]])
        self._products = tile_products(known, tiling)
        self._n_vectors = len(vectors)

    @property
    def n_tiles(self) -> int:
        """The number of tiles."""
        return len(self._products)

    def split(self, n_tiles: int) -> Iterator["TileTrials"]:
        """The tiles in groups of `n_tiles`, the last of which may be smaller."""
        for products in self._products.split(n_tiles):
            part = copy(self)
            part._products = products
            yield part

    def along(self, coefficients: Tensor) -> Tensor:
        """[n_tiles, c] inner products of the rule's result minus the mean with the first vector.

        Args:
            coefficients: [n_tiles, c, n_bad, r] those of c trials.
        """
        shifts = self._shifts(coefficients)
        first = self._products[:, :, -self._n_vectors - 1]
        return torch.bmm(shifts, first[:, :, None])[:, :, 0]

    def distances(self, coefficients: Tensor) -> Tensor:
        """[n_tiles, c] distances of the rule's result from the mean; arguments as above."""
        shifts = self._shifts(coefficients)
        squares = (torch.bmm(shifts, self._products) * shifts).sum(2)
        return squares.clamp(min=0).sqrt()

    def _shifts(self, coefficients: Tensor) -> Tensor:
        """[n_tiles, c, m] the rule's result minus the mean, in the m vectors that are known."""
        n_tiles, n_trials = coefficients.shape[:2]
        m = self._products.shape[1]
        rows = torch.zeros(n_tiles, n_trials, len(self._mask), m, dtype=torch.float64)
        honest = torch.nonzero(~self._mask)[:, 0]
        rows[:, :, honest, torch.arange(len(honest))] = 1.0
        rows[:, :, self._mask, len(honest) : -1] = coefficients.double()
        rows[:, :, :, -1] = 1.0  # all of these are differences from the mean
        weights = self._weights(rows)
        shifts = torch.bmm(weights[:, None], rows.flatten(0, 1))[:, 0].view(n_tiles, n_trials, m)
        shifts[:, :, -1] -= 1.0
        return shifts

    def _weights(self, rows: Tensor) -> Tensor:
        """[n_tiles * c, n] the rule's weights for rows [n_tiles, c, n, m]; NaN where it is
        stuck.
        """
        if _ignores_origin(self._rule):
            # About a bad row, many of which are equal: where their group is the median or close to
            # it, products about another point would lose the distances that decide.
            rows = rows - rows[:, :, self._mask][:, :, :1]
        products = torch.bmm(rows.flatten(1, 2), self._products).view_as(rows)
        grams = torch.bmm(products.flatten(0, 1), rows.flatten(0, 1).mT)
        grams.diagonal(dim1=1, dim2=2).clamp_(min=0)
        return self._rule.weights_from_grams(grams, row_weights=self._row_weights, approximate=True)


def _ignores_origin(rule: Aggregator) -> bool:
    """Whether inner products about any point of the plane of the rows give the same weights."""
    while isinstance(rule, NearestNeighborMixing):
        rule = rule.inner
    return isinstance(rule, GeometricMedian)


def tile_products(vectors: Tensor, tiling: Tiling) -> Tensor:
    """[n_tiles, m, m] inner products of the vectors [m, d] in each tile, float64 on the CPU."""
    m = len(vectors)
    products = torch.empty(tiling.n_tiles, m, m, dtype=torch.float64)
    with full_precision():
        for piece, tiled in DenseRows(vectors).groups(tiling, max(1, ENTRIES // m)):
            at = slice(piece.first, piece.first + piece.n_tiles)
            if piece.width > WIDE:
                products[at] = torch.stack(
                    [products_between(one, one).cpu().double() for one in tiled.unbind(1)]
                )
                continue
            wide = tiled.transpose(0, 1).cpu().double()
            products[at] = torch.bmm(wide, wide.mT)
    return products
