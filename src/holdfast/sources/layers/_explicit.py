from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from holdfast.geometry import products_between
from holdfast.sources.layers._layer_gradients import LayerGradients, largest, squares


@final
@dataclass(frozen=True, eq=False)
class Explicit(LayerGradients):
    """A parameter small enough to keep its gradient for every sample: biases, and scales and shifts of normalisation layers.

    Attributes:
        rows: [n, ...] the gradients.
    """

    parameters: tuple[Tensor]
    rows: Tensor

    def products(self) -> Tensor:
        flat = self.rows.reshape(len(self.rows), -1)
        return products_between(flat, flat)

    def squared_norms(self) -> Tensor:
        return squares(self.rows)

    def products_with(self, vectors: Sequence[Tensor]) -> Tensor:
        flat = self.rows.reshape(len(self.rows), -1)
        return (flat @ vectors[0].to(flat).reshape(-1)).double()

    def combine(self, weights: Tensor) -> list[Tensor]:
        return [torch.tensordot(weights.to(self.rows), self.rows, dims=1)]

    def magnitudes(self) -> Tensor:
        return largest(self.rows)

    def keep(self, indices: Tensor) -> "Explicit":
        return replace(self, rows=self.rows[indices])

    def widened(self, scale: float) -> "Explicit":
        return replace(self, rows=self.rows.double() * scale)
