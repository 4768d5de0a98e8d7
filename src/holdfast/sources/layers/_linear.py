r"""Weights of linear layers, and sums of outer products, which convolutions share.

With T positions per sample (one for a plain linear layer) the gradient of sample i is the sum
:math:`\sum_t \delta_{it} u_{it}^T` over its output gradients [o] and its input patches [p].
Inner products between samples have two forms; the sizes decide which is cheaper:

- pairwise: products between all pairs of positions, without any gradient;
- explicit: the samples' gradients, a chunk of columns at a time.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import linear

from holdfast.geometry import products_between
from holdfast.sources.layers._layer_gradients import (
    LIMIT,
    LayerGradients,
    dots,
    largest,
    squares,
    weighted,
)

# Rows of one product: few enough to skip most of one side of the diagonal, many enough for speed.
BLOCK = 64
# Output gradients [n, ..., o, T] and patches [n, ..., T, c], for c columns of the gradients.
Chunks = Iterable[tuple[Tensor, Tensor]]


@final
@dataclass(frozen=True, eq=False)
class LinearWeight(LayerGradients):
    r"""The weight [o, p] of a linear layer.

    Attributes:
        inputs: [n, T, p] the inputs of the layer.
        gradients: [n, T, o] gradients with respect to its outputs.
    """

    parameters: tuple[Tensor]
    inputs: Tensor
    gradients: Tensor
    is_divisible: ClassVar[bool] = True

    def products(self) -> Tensor:
        n, n_positions, n_inputs = self.inputs.shape
        if pays_pairwise(n, n_positions, self.gradients.shape[2], n_inputs):
            return pairwise_products(self.inputs, self.gradients)
        return explicit_products(self._chunks())

    def squared_norms(self) -> Tensor:
        if self.inputs.shape[1] == 1:
            return squares(self.inputs) * squares(self.gradients)
        return explicit_norms(self._chunks())

    def _chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        n, _, n_outputs = self.gradients.shape
        for patches in torch.split(self.inputs, max(1, LIMIT // (n * n_outputs)), dim=2):
            yield self.gradients.mT, patches

    def products_with(self, vectors: Sequence[Tensor]) -> Tensor:
        return dots(linear(self.inputs, vectors[0].to(self.inputs)), self.gradients)

    def combine(self, weights: Tensor) -> list[Tensor]:
        return [weighted(self.gradients, weights).flatten(0, 1).T @ self.inputs.flatten(0, 1)]

    def magnitudes(self) -> Tensor:
        return largest(self.inputs) * largest(self.gradients) * self.inputs.shape[1]

    def matrix(self, at: slice) -> Tensor:
        return torch.matmul(self.gradients[..., at].mT, self.inputs).flatten(1)

    def keep(self, indices: Tensor) -> "LinearWeight":
        return replace(self, inputs=self.inputs[indices], gradients=self.gradients[indices])

    def widened(self, scale: float) -> "LinearWeight":
        return replace(self, inputs=self.inputs.double(), gradients=self.gradients.double() * scale)


def pays_pairwise(n: int, n_positions: int, n_outputs: int, n_inputs: int) -> bool:
    """Whether the pairwise form costs less than the explicit one."""
    # An entry costs its two inner products, and about 20 of their terms to multiply and sum it.
    pairs = (n * n_positions) ** 2 * (n_inputs + n_outputs + 20)
    return pairs <= n * (n + n_positions) * n_outputs * n_inputs


def pairwise_products(patches: Tensor, gradients: Tensor) -> Tensor:
    r"""[n, n] inner products from patches [n, T, p] and gradients [n, T, o].

    .. math:: \sum_{t, s} \langle u_{it}, u_{js} \rangle \langle \delta_{it}, \delta_{js} \rangle
    """
    n, n_positions = patches.shape[:2]
    if n_positions == 1:
        u, delta = patches[:, 0], gradients[:, 0]
        return products_between(u, u) * products_between(delta, delta)
    u, delta = patches.flatten(0, 1), gradients.flatten(0, 1)
    chunk = max(1, LIMIT // (n_positions * n_positions * n))
    blocks = []
    for at in range(0, n, chunk):
        rows = slice(at * n_positions, (at + chunk) * n_positions)
        products = (u[rows] @ u.T).mul_(delta[rows] @ delta.T)
        pairs = products.view(-1, n_positions, n, n_positions)
        blocks.append(pairs.sum((1, 3), dtype=torch.float64))
    return torch.cat(blocks)


def explicit_products(chunks: Chunks) -> Tensor:
    """[n, n] inner products of the samples' gradients."""
    found = (_symmetric_products(torch.matmul(*chunk).flatten(1)) for chunk in chunks)
    return reduce(torch.add, found)


def explicit_norms(chunks: Chunks) -> Tensor:
    """[n] squared norms of the samples' gradients."""
    return reduce(torch.add, (squares(torch.matmul(*chunk)) for chunk in chunks))


def _symmetric_products(rows: Tensor) -> Tensor:
    """[n, n] inner products of the rows [n, c], computed on one side of the diagonal only."""
    n = len(rows)
    products = torch.empty(n, n, dtype=torch.float64, device=rows.device)
    for at in range(0, n, BLOCK):
        found = products_between(rows[at : at + BLOCK], rows[at:])
        products[at : at + BLOCK, at:] = found
        products[at:, at : at + BLOCK] = found.T
    return products
