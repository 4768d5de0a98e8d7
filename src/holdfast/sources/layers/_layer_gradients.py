"""Per-sample gradients of parameters, known through what flowed through their layer."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

LIMIT = 2**22
"""Entries of the largest intermediate matrix: big enough for fast products, small enough to stay near the cache (16 MB in float32)."""


class LayerGradients(ABC):
    """For n samples, the gradients of a few parameters, without the matrix [n, number of parameters].

    Implementations keep what entered the layer and the gradients of the losses with respect to what left it.

    Attributes:
        parameters: the parameters, in the order of all lists here.
    """

    parameters: tuple[Tensor, ...]

    @abstractmethod
    def products(self) -> Tensor:
        """[n, n] inner products of the samples' gradients, in float64 where the device has it."""

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """[n] the diagonal of the products, at less cost."""

    @abstractmethod
    def products_with(self, vectors: Sequence[Tensor]) -> Tensor:
        """[n] inner products with one vector, given as one tensor of each parameter's shape."""

    @abstractmethod
    def combine(self, weights: Tensor) -> list[Tensor]:
        """The sum of `weights[i]` times the gradients of sample i, one tensor of each parameter's shape."""

    @abstractmethod
    def magnitudes(self) -> Tensor:
        """[n] at least the largest entry of each sample's gradients; not finite if, and only if, an entry may not be (float64)."""

    @abstractmethod
    def keep(self, indices: Tensor) -> "LayerGradients":
        """Only the samples at `indices`."""

    @abstractmethod
    def widened(self, scale: float) -> "LayerGradients":
        """The same in float64, multiplied by `scale`."""


def largest(tensor: Tensor) -> Tensor:
    """[n] the largest magnitude in each tensor [...] of `tensor` [n, ...], as float64; NaN stays NaN."""
    return tensor.detach().reshape(len(tensor), -1).abs().amax(1).double()


def weighted(tensor: Tensor, weights: Tensor) -> Tensor:
    """The tensor [n, ...] with its i-th part multiplied by `weights[i]`."""
    return tensor * weights.to(tensor).reshape(-1, *[1] * (tensor.ndim - 1))


def squares(tensor: Tensor) -> Tensor:
    """[n] squared norms of the parts of a tensor [n, ...]."""
    norms: Tensor = torch.linalg.vector_norm(tensor.reshape(len(tensor), -1), dim=1)
    return norms.double().square()


def dots(left: Tensor, right: Tensor) -> Tensor:
    """[n] inner products of corresponding parts of two tensors [n, ...], summed wide."""
    return (left * right).reshape(len(left), -1).sum(1, dtype=torch.float64)
