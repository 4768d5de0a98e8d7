"""Per-sample gradients of parameters: the interface, its plain form, and sums over samples."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, final

import torch
from torch import Tensor

from holdfast.geometry import products_between

# Entries of the largest intermediate matrix: large enough for fast products, small enough to stay
# near the cache (16 MB in float32).
LIMIT = 2**22


class LayerGradients(ABC):
    """The gradients of a few parameters for n samples, without a matrix [n, size of parameters].

    Implementations keep the inputs of the layer and the gradients of the losses with respect to its
    outputs.

    Attributes:
        parameters: the parameters, in the order of all lists of this class.
        is_divisible: whether `matrix` can form a part of the gradients at less cost than all.
    """

    parameters: tuple[Tensor, ...]
    is_divisible: ClassVar[bool] = False

    @abstractmethod
    def products(self) -> Tensor:
        """[n, n] inner products of the samples' gradients, in float64 where the device has it."""

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """[n] the diagonal of the products, at less cost."""

    @abstractmethod
    def products_with(self, vectors: Sequence[Tensor]) -> Tensor:
        """[n] inner products with one vector, given as one tensor per parameter."""

    @abstractmethod
    def combine(self, weights: Tensor) -> list[Tensor]:
        """The sum over i of `weights[i]` times the gradients of sample i, one per parameter."""

    @abstractmethod
    def magnitudes(self) -> Tensor:
        """[n] upper bounds on the entries of each sample's gradients, in float64.

        A bound is not finite if and only if an entry may not be.
        """

    @abstractmethod
    def matrix(self, at: slice) -> Tensor:
        """[n, c] the samples' gradients, of the rows `at` of the parameter if it is divisible."""

    @abstractmethod
    def keep(self, indices: Tensor) -> "LayerGradients":
        """Only the samples at `indices`."""

    @abstractmethod
    def widened(self, scale: float) -> "LayerGradients":
        """The same gradients in float64, multiplied by `scale`."""


@final
@dataclass(frozen=True, eq=False)
class Explicit(LayerGradients):
    """A parameter so small that its gradient is stored for every sample, such as a bias.

    Attributes:
        rows: [n, ...] the gradients.
    """

    parameters: tuple[Tensor]
    rows: Tensor
    is_divisible: ClassVar[bool] = True

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

    def matrix(self, at: slice) -> Tensor:
        return self.rows[:, at].flatten(1)

    def keep(self, indices: Tensor) -> "Explicit":
        return replace(self, rows=self.rows[indices])

    def widened(self, scale: float) -> "Explicit":
        return replace(self, rows=self.rows.double() * scale)


def _flat(tensor: Tensor) -> Tensor:
    """[n, ...] flattened to [n, c] in the order of its memory, without a copy of channels_last."""
    strides = tensor.stride()
    order = sorted(range(1, tensor.ndim), key=lambda dimension: -strides[dimension])
    return tensor.detach().permute(0, *order).reshape(len(tensor), -1)


def largest(tensor: Tensor) -> Tensor:
    """[n] the largest magnitude in each part of `tensor` [n, ...], in float64; NaN stays NaN."""
    flat = _flat(tensor)
    # On a CPU two reductions take a tenth of the time of abs() or an infinity norm.
    return torch.maximum(flat.amax(1), -flat.amin(1)).double()


def weighted(tensor: Tensor, weights: Tensor) -> Tensor:
    """The tensor [n, ...] with part i multiplied by `weights[i]`."""
    return tensor * weights.to(tensor).reshape(-1, *[1] * (tensor.ndim - 1))


def squares(tensor: Tensor) -> Tensor:
    """[n] squared norms of the parts of a tensor [n, ...]."""
    norms: Tensor = torch.linalg.vector_norm(_flat(tensor), dim=1)
    return norms.double().square()


def dots(left: Tensor, right: Tensor) -> Tensor:
    """[n] inner products of corresponding parts of two tensors [n, ...], summed in float64."""
    return (left * right).reshape(len(left), -1).sum(1, dtype=torch.float64)
