"""The Gram matrix of rows, references and the origin: all that a rule in Gram space may know of them."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from holdfast.geometry._kernels import wide_device

SAME = 1e-13
"""Squared distances below this share of the squared norms are float64's own rounding: the points are equal."""


def distances_from(products: Tensor, weights: Tensor, *, least: float = 0.0) -> Tensor:
    """[n] distances of points with these inner products from their combination with `weights`; squares are at least `least`."""
    image = products @ weights
    return (products.diagonal() - 2 * image + weights @ image).clamp(min=least).sqrt()


def squared_distances(products: Tensor) -> Tensor:
    """[m, m] squared distances between points with these inner products; equal points have distance zero exactly."""
    squares = products.diagonal()
    sums = squares[:, None] + squares[None, :]
    distances = sums - 2 * products
    distances[distances <= SAME * sums] = 0.0
    return distances.fill_diagonal_(0.0)


@dataclass(frozen=True, eq=False)
class Gram:
    r"""Inner products of points, in float64 on the CPU.

    The points are the kept rows, then the references, then the origin. All of them are seen from one base point, which a
    rule need not know: distances, norms and inner products about the origin follow from differences. Lengths are measured
    in `unit`, a power of two (other than 1 only for float64 rows of unusual size).

    Attributes:
        products: [m, m] inner products about the base point.
        kept: [n] positions, among all rows, of those that are finite; the rule sees these alone.
        n_lost: the number of rows that are not, and are known to be bad.
        unit: the length that the numbers here call 1.
        exact: whether the rows took the careful pass, so that sums of them should, too.
        uncentred: [m, m] the same about the origin, where the base point is another and may be too far from it to tell.
        precision: how well a relative objective is known from these products; 0 if to float64's last digits.
    """

    products: Tensor
    kept: Tensor
    n_lost: int = 0
    unit: float = 1.0
    exact: bool = False
    precision: float = 0.0
    uncentred: Tensor | None = None

    @property
    def n(self) -> int:
        """The number of kept rows."""
        return len(self.kept)

    def n_bad_left(self, n_bad: int) -> int:
        """How many of the kept rows may be bad if `n_bad` of all rows may."""
        return max(0, n_bad - self.n_lost)

    @cached_property
    def squared_distances(self) -> Tensor:
        """[n, n] squared distances between the rows."""
        return squared_distances(self.products[: self.n, : self.n])

    @cached_property
    def distances(self) -> Tensor:
        """[n, n] distances between the rows."""
        return self.squared_distances.sqrt()

    @cached_property
    def norms(self) -> Tensor:
        """[n] distances of the rows from the origin."""
        return self.about_origin.diagonal()[: self.n].clamp(min=0).sqrt()

    @property
    def about_origin(self) -> Tensor:
        """[m, m] inner products as seen from the origin."""
        return self.about(-1) if self.uncentred is None else self.uncentred

    def about(self, point: int) -> Tensor:
        """[m, m] inner products as seen from one of the points."""
        to_point = self.products[:, point]
        return self.products - to_point[:, None] - to_point[None, :] + to_point[point]

    def pulled(self, centre: int, radius: float) -> tuple[Tensor, Tensor]:
        """[n, n] inner products about row `centre` of the rows, none farther from it than `radius`; and the factors [n] of the pull."""
        pull = (radius / self.distances[centre]).clamp(max=1.0)
        return self.about(centre)[: self.n, : self.n] * pull[:, None] * pull[None, :], pull

    def transformed(self, matrix: Tensor) -> "Gram":
        """The Gram matrix of the rows `matrix @ rows`, with the same references and origin.

        What a row of `matrix` [n', n] lacks to the sum 1 stands on the origin: a clipped row is a mixture of itself and zero.
        """
        n_others = len(self.products) - self.n
        change = torch.zeros(len(matrix) + n_others, len(self.products), dtype=torch.float64)
        change[: len(matrix), : self.n] = matrix
        change[: len(matrix), -1] = 1.0 - matrix.sum(1)
        change[len(matrix) :, self.n :] = torch.eye(n_others, dtype=torch.float64)
        return replace(
            self,
            products=change @ self.products @ change.T,
            uncentred=None if self.uncentred is None else change @ self.uncentred @ change.T,
            kept=torch.arange(len(matrix)),
        )


class Lengths(Protocol):
    """Norms of the finite rows. A Gram matrix knows them; one light pass finds them alone."""

    @property
    def n(self) -> int: ...
    @property
    def kept(self) -> Tensor: ...
    @property
    def n_lost(self) -> int: ...
    @property
    def unit(self) -> float: ...
    @property
    def exact(self) -> bool: ...
    @property
    def norms(self) -> Tensor: ...
    def n_bad_left(self, n_bad: int) -> int: ...


@dataclass(frozen=True, eq=False)
class CleanLengths:
    """Norms [n] of rows that are all finite and of ordinary size, float64 on the CPU."""

    norms: Tensor
    kept: Tensor
    n_lost: int = 0
    unit: float = 1.0
    exact: bool = False

    @property
    def n(self) -> int:
        return len(self.norms)

    def n_bad_left(self, n_bad: int) -> int:
        return n_bad


def length(vector: Tensor) -> float:
    """The norm of a tensor; where squares may leave the range of its dtype, relative to its largest entry."""
    found = float(torch.linalg.vector_norm(vector))
    if 1e-15 < found < 1e15:
        return found
    largest = float(vector.abs().max())
    if largest == 0.0 or not largest < float("inf"):
        return largest
    return (
        float(
            torch.linalg.vector_norm(vector.to(wide_device(vector.device), torch.float64) / largest)
        )
        * largest
    )
