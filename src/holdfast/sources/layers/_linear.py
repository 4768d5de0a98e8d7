from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor
from torch.nn.functional import linear

from holdfast.sources.layers._layer_gradients import (
    LIMIT,
    LayerGradients,
    dots,
    largest,
    squares,
    weighted,
)
from holdfast.sources.layers._outer import (
    explicit_norms,
    explicit_products,
    pairwise_products,
    pays_pairwise,
)


@final
@dataclass(frozen=True, eq=False)
class LinearWeight(LayerGradients):
    r"""The weight [o, p] of a linear layer: sample i has the gradient :math:`\sum_t \delta_{it} u_{it}^T`.

    Attributes:
        inputs: [n, T, p] what entered the layer.
        gradients: [n, T, o] gradients with respect to what left it.
    """

    parameters: tuple[Tensor]
    inputs: Tensor
    gradients: Tensor

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

    def keep(self, indices: Tensor) -> "LinearWeight":
        return replace(self, inputs=self.inputs[indices], gradients=self.gradients[indices])

    def widened(self, scale: float) -> "LinearWeight":
        return replace(self, inputs=self.inputs.double(), gradients=self.gradients.double() * scale)
