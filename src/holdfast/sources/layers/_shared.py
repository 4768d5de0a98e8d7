from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import final

import torch
from torch import Tensor

from holdfast.geometry import products_between
from holdfast.sources.layers._layer_gradients import LIMIT, LayerGradients, squares


@final
@dataclass(frozen=True, eq=False)
class Shared(LayerGradients):
    """Parameters that are used several times, such as tied input and output embeddings.

    The gradient of a sample is the sum over the uses. Inner products between different uses have no
    closed form, so the samples' gradients are formed, a few rows of the parameter at a time.

    Attributes:
        uses: the gradients from each use, all of the same parameters.
    """

    uses: tuple[LayerGradients, ...]

    @property
    def parameters(self) -> tuple[Tensor, ...]:  # type: ignore[override]
        return self.uses[0].parameters

    def products(self) -> Tensor:
        return reduce(torch.add, (products_between(rows, rows) for rows in self._matrices()))

    def squared_norms(self) -> Tensor:
        return reduce(torch.add, map(squares, self._matrices()))

    def products_with(self, vectors: Sequence[Tensor]) -> Tensor:
        return reduce(torch.add, (use.products_with(vectors) for use in self.uses))

    def combine(self, weights: Tensor) -> list[Tensor]:
        sums = zip(*(use.combine(weights) for use in self.uses), strict=True)
        return [reduce(torch.add, each) for each in sums]

    def magnitudes(self) -> Tensor:
        return reduce(torch.add, (use.magnitudes() for use in self.uses))

    def matrix(self, at: slice) -> Tensor:
        return reduce(torch.add, (use.matrix(at) for use in self.uses))

    def keep(self, indices: Tensor) -> "Shared":
        return Shared(tuple(use.keep(indices) for use in self.uses))

    def widened(self, scale: float) -> "Shared":
        return Shared(tuple(use.widened(scale) for use in self.uses))

    def _matrices(self) -> Iterator[Tensor]:
        """[n, c] the samples' gradients, for consecutive rows of the parameter."""
        if not all(use.is_divisible for use in self.uses):
            yield self.matrix(slice(None))
            return
        n, parameter = len(self.uses[0].magnitudes()), self.parameters[0]
        n_rows = max(1, LIMIT // max(1, n * parameter[0].numel()))
        for at in range(0, len(parameter), n_rows):
            yield self.matrix(slice(at, at + n_rows))
