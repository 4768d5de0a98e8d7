"""Gram matrices and norms: everything that rules in Gram space know of the rows."""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from holdfast.geometry._kernels import wide_device

SAME = 1e-13
"""Squared distances below this share of the squared norms are float64 rounding: equal points."""


def distances_from(products: Tensor, weights: Tensor) -> Tensor:
    """[n] distances of points from their combination with `weights`."""
    image = products @ weights
    return (products.diagonal() - 2 * image + weights @ image).clamp(min=0.0).sqrt()


def squared_distances(products: Tensor) -> Tensor:
    """[..., m, m] squared distances of points with these inner products; 0 for equal points."""
    squares = products.diagonal(dim1=-2, dim2=-1)
    sums = squares[..., :, None] + squares[..., None, :]
    distances = sums - 2 * products
    distances.masked_fill_(distances <= SAME * sums, 0.0)
    distances.diagonal(dim1=-2, dim2=-1).zero_()
    return distances


@dataclass(frozen=True, eq=False)
class Gram:
    r"""Inner products of points, in float64 on the CPU.

    The points are the kept rows, then the references, then the origin. Inner products are taken
    about one base point, which a rule need not know: distances, norms and inner products about the
    origin follow from differences. Lengths are in multiples of `unit`, a power of two (other than 1
    only for float64 rows of unusual size).

    Attributes:
        products: [m, m] inner products about the base point.
        kept: [n] positions, among all rows, of the finite ones; the rule sees only these.
        n_lost: the number of rows that are not finite, and so are known to be bad.
        unit: the length that is 1 here.
        exact: whether the rows took the careful pass, so that sums of them should take it as well.
        precision: bound on the error of a measured inner product, relative to the two norms.
        rounding: bound on the rounding of a sum of rows, relative to the sum of their norms.
        underflow: bound on what is lost, besides, of entries below the dtype's normal range.
        same: [n] labels; rows with equal labels are known to be equal. None if none are.
        mixture: [m, k] coefficients of the points in those that were measured; None if these are
            the points themselves.
        sizes: [k] upper bounds on the norms of the measured points about the base point; None if
            these are the points themselves and the roots of their squares in `products` will do.
        uncentered: [m, m] inner products about the origin, if the base point is another one and too
            far from the origin to derive them.
    """

    products: Tensor
    kept: Tensor
    n_lost: int = 0
    unit: float = 1.0
    exact: bool = False
    precision: float = 0.0
    rounding: float = 0.0
    underflow: float = 0.0
    same: Tensor | None = None
    mixture: Tensor | None = None
    sizes: Tensor | None = None
    uncentered: Tensor | None = None

    @property
    def n(self) -> int:
        """The number of kept rows."""
        return len(self.kept)

    @cached_property
    def all_squared_distances(self) -> Tensor:
        """[m - 1, m - 1] squared distances between all points but the origin."""
        return squared_distances(self.products[:-1, :-1])

    @property
    def squared_distances(self) -> Tensor:
        """[n, n] squared distances between the rows."""
        return self.all_squared_distances[: self.n, : self.n]

    @cached_property
    def distances(self) -> Tensor:
        """[n, n] distances between the rows."""
        return self.squared_distances.sqrt()

    @cached_property
    def norms(self) -> Tensor:
        """[n] distances of the rows from the origin."""
        return self.about_origin.diagonal()[: self.n].clamp(min=0).sqrt()

    @property
    def measured_sizes(self) -> Tensor:
        """[k] bounds on the norms of the measured points about the base point."""
        if self.sizes is not None:
            return self.sizes
        return self.products.diagonal().clamp(min=0).sqrt()

    @property
    def about_origin(self) -> Tensor:
        """[m, m] inner products about the origin."""
        return self.about(-1) if self.uncentered is None else self.uncentered

    def for_all(self, n: int) -> Tensor:
        """[n, n] inner products of all n rows about the origin; NaN for those that were lost."""
        products = torch.full((n, n), torch.nan, dtype=torch.float64)
        found = self.about_origin[: self.n, : self.n] * self.unit**2
        products[self.kept[:, None], self.kept] = found
        return products

    def about(self, point: int) -> Tensor:
        """[m, m] inner products about one of the points."""
        # Differences of rows first: for a row equal to the point they vanish to the last bit.
        about_point = self.products - self.products[point]
        return about_point - about_point[:, point, None]

    def with_far_rows_clipped(self, center: int, radius: float) -> Tensor:
        """[n, n] inner products about row `center`, with farther rows moved in to `radius`."""
        factors = (radius / self.distances[center]).clamp(max=1.0)
        products = self.about(center)[: self.n, : self.n]
        return products * factors[:, None] * factors

    def transformed(self, matrix: Tensor) -> "Gram":
        """The Gram matrix of the rows `matrix @ rows`, with the same references and origin."""
        n_others = len(self.products) - self.n
        change = torch.zeros(len(matrix) + n_others, len(self.products), dtype=torch.float64)
        change[: len(matrix), : self.n] = matrix
        # The base point is not the origin, so coefficients must sum to 1. The rest is a multiple of
        # the origin: a clipped row is a mixture of itself and zero.
        change[: len(matrix), -1] = 1.0 - matrix.sum(1)
        change[len(matrix) :, self.n :] = torch.eye(n_others, dtype=torch.float64)
        uncentered = None if self.uncentered is None else change @ self.uncentered @ change.T
        products, kept = change @ self.products @ change.T, torch.arange(len(matrix))
        # Equal combinations of rows are equal, also where the rows are equal by their labels.
        by_label = matrix
        if self.same is not None:
            by_label = torch.zeros_like(matrix).index_add_(1, self.same, matrix)
        _, same = torch.unique(by_label, dim=0, return_inverse=True)
        return replace(
            self,
            products=products,
            uncentered=uncentered,
            kept=kept,
            same=same,
            mixture=change if self.mixture is None else change @ self.mixture,
            sizes=self.measured_sizes,
        )


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


Lengths = Gram | CleanLengths
"""Norms of the finite rows, from a Gram matrix or from one lighter pass; see `Gram`."""


def length(vector: Tensor) -> float:
    """The norm of a tensor, also where the squares leave the range of its dtype."""
    found = float(torch.linalg.vector_norm(vector))
    if 1e-15 < found < 1e15 or vector.numel() == 0:
        return found
    largest = float(vector.abs().max())
    if largest == 0.0 or not largest < float("inf"):
        return largest
    # Relative to the largest entry no square overflows, and none that counts underflows.
    scaled = vector.to(wide_device(vector.device), torch.float64) / largest
    return float(torch.linalg.vector_norm(scaled)) * largest
