from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, final

import torch
from torch import Tensor

from holdfast.geometry import products_between
from holdfast.sources.layers._layer_gradients import (
    LIMIT,
    LayerGradients,
    dots,
    largest,
    squares,
    weighted,
)


@final
@dataclass(frozen=True, eq=False)
class EmbeddingWeight(LayerGradients):
    """The table of an embedding: a sample's gradient is zero except at the entries it looked up.

    Attributes:
        indices: [n, T] the entries that each sample looked up.
        gradients: [n, T, e] gradients with respect to these entries.
    """

    parameters: tuple[Tensor]
    indices: Tensor
    gradients: Tensor
    is_divisible: ClassVar[bool] = True

    def products(self) -> Tensor:
        n, n_positions, _ = self.gradients.shape
        if n_positions == 1:
            same = self.indices == self.indices.T
            return products_between(self.gradients[:, 0], self.gradients[:, 0]) * same
        total = torch.zeros(n, n, dtype=torch.float64, device=self.gradients.device)
        for table in self._tables():
            total += products_between(table, table)
        return total

    def squared_norms(self) -> Tensor:
        if self.gradients.shape[1] == 1:
            return squares(self.gradients)
        return torch.stack([squares(table) for table in self._tables()]).sum(0)

    def _tables(self) -> Iterator[Tensor]:
        """[n, ...] each sample's gradient of the used entries, a few columns at a time."""
        n, _, width = self.gradients.shape
        used, places = torch.unique(self.indices, return_inverse=True)
        rows = torch.arange(n, device=places.device)[:, None] * len(used) + places
        chunk = max(1, min(width, LIMIT // (n * len(used))))
        for columns in torch.split(self.gradients, chunk, dim=2):
            # A sample may look up an entry several times, so gradients are added, not written.
            table = columns.new_zeros(n * len(used), columns.shape[2])
            yield table.index_add_(0, rows.flatten(), columns.flatten(0, 1)).view(n, -1)

    def products_with(self, vectors: Sequence[Tensor]) -> Tensor:
        return dots(vectors[0].to(self.gradients)[self.indices], self.gradients)

    def combine(self, weights: Tensor) -> list[Tensor]:
        total = self.gradients.new_zeros(self.parameters[0].shape)
        gradients = weighted(self.gradients, weights).flatten(0, 1)
        return [total.index_add_(0, self.indices.flatten(), gradients)]

    def magnitudes(self) -> Tensor:
        return largest(self.gradients) * self.gradients.shape[1]

    def matrix(self, at: slice) -> Tensor:
        start, stop, _ = at.indices(len(self.parameters[0]))
        n, size = len(self.gradients), stop - start
        samples = torch.arange(n, device=self.indices.device)[:, None].expand_as(self.indices)
        inside = (self.indices >= start) & (self.indices < stop)
        table = self.gradients.new_zeros(n * size, self.gradients.shape[2])
        places = samples[inside] * size + self.indices[inside] - start
        return table.index_add_(0, places, self.gradients[inside]).view(n, -1)

    def keep(self, indices: Tensor) -> "EmbeddingWeight":
        return replace(self, indices=self.indices[indices], gradients=self.gradients[indices])

    def widened(self, scale: float) -> "EmbeddingWeight":
        return replace(self, gradients=self.gradients.double() * scale)
