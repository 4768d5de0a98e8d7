"""Many small sets of rows, such as the tiles of some columns, and their inner products."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import torch
from torch import Tensor

from holdfast.geometry._central import half_weight_radii
from holdfast.geometry._gram import squared_distances
from holdfast.geometry._measure import MANY_LOST, product_error

RESOLVED = 1e-9
"""Squared distances above this share of the squared norms have enough digits in float64."""


@final
@dataclass(frozen=True, eq=False)
class RowSets:
    """t sets of n finite rows, each a small problem of its own.

    Attributes:
        given: [t, n, n] inner products about the origin, if only these are known.
        rows: [t, n, w] the rows, if they are known, in a dtype for products.
        dtype: the dtype in which the rows are stored, and their sums returned.
        n_lost: the number of further rows that were not finite: bad rows that are already known.
    """

    given: Tensor | None = None
    rows: Tensor | None = None
    dtype: torch.dtype = torch.float64
    n_lost: int = 0

    @property
    def _known(self) -> Tensor:
        known = self.given if self.rows is None else self.rows
        assert known is not None, "sets have rows or inner products"
        return known

    @property
    def n(self) -> int:
        """The number of rows of each set."""
        return self._known.shape[1]

    def __len__(self) -> int:
        return len(self._known)

    @cached_property
    def products(self) -> Tensor:
        """[t, n, n] inner products about the origin, in float64."""
        if self.rows is None:
            assert self.given is not None
            return self.given
        wide = self.rows.double()
        return torch.bmm(wide, wide.transpose(1, 2))

    @cached_property
    def precision(self) -> float:
        """Bound on the errors of the float64 products, relative to the norms."""
        return product_error(2**40 if self.rows is None else self.rows.shape[2], torch.float64)

    @cached_property
    def squared_distances(self) -> Tensor:
        """[t, n, n] squared distances between the rows of each set; 0 for equal rows."""
        return squared_distances(self.products)

    @cached_property
    def distances(self) -> Tensor:
        """[t, n, n] distances between the rows of each set."""
        return self.squared_distances.sqrt()

    @cached_property
    def are_resolved(self) -> Tensor:
        """Whether (bool [t]) rows are equal, or so different that the products tell by how much."""
        squares = self.products.diagonal(dim1=1, dim2=2)
        tiny = MANY_LOST * torch.finfo(torch.float64).tiny
        safe = (squares > tiny) | (squares == 0)
        in_range = safe.all(1) & torch.isfinite(squares).all(1)
        sums = squares[:, :, None] + squares[:, None]
        squared = self.squared_distances
        are_far = ((squared == 0) | (squared >= RESOLVED * sums)).all(2).all(1)
        return in_range & are_far & self._equal_rows_are_equal()

    def _equal_rows_are_equal(self) -> Tensor:
        """Whether (bool [t]) rows at distance zero are equal in every column that is known."""
        equal = self.squared_distances == 0
        answer = torch.ones(len(equal), dtype=torch.bool)
        doubtful = torch.nonzero(equal.flatten(1).sum(1) > self.n)[:, 0]
        if self.rows is None or len(doubtful) == 0:
            return answer
        # Each row is compared with the first one that it should be equal to.
        first = equal[doubtful].to(torch.uint8).argmax(2)
        rows = self.rows[doubtful]
        others = rows.gather(1, first[:, :, None].expand_as(rows))
        answer[doubtful] = (rows == others).all(2).all(1)
        return answer

    def about_central_rows(self, chosen: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """[s, n, w] the rows of the sets at `chosen` about a central one, and its norms [s].

        In float64: neither overflow nor a large part common to all rows of a set spoils them.
        """
        assert self.rows is not None
        wide = self.rows[chosen].double()
        products = torch.bmm(wide, wide.transpose(1, 2))
        distances = squared_distances(products).sqrt()
        center = half_weight_radii(distances, weights).argmin(1)
        origins = wide[torch.arange(len(center)), center]
        return wide - origins[:, None], origins.norm(dim=1)

    def mixed(self, matrices: Tensor) -> "RowSets":
        """The sets of combinations of the rows, with coefficients [t, m, n]; in float64."""
        if self.rows is not None:
            rows = torch.bmm(matrices, self.rows.double())
            # Products of equal factors may differ in the last bit, and rows that are nearly equal
            # cannot be solved together. Equal combinations take the bits of the first of them.
            first = _first_equal(matrices)
            return replace(self, rows=rows.gather(1, first[:, :, None].expand_as(rows)))
        products = torch.bmm(torch.bmm(matrices, self.products), matrices.transpose(1, 2))
        products = (products + products.transpose(1, 2)) / 2
        products.diagonal(dim1=1, dim2=2).clamp_(min=0)
        return replace(self, given=products)

    def exceed_rounding_of(self, others: "RowSets") -> Tensor:
        """Whether (bool [t]) rows are equal, or differ by far more than the rounding of others.

        The rows were made from the others, which may be far longer and cancel in a sum. Differences
        of 3e-5 of the longest of them have rounding errors of some 1e-11 of their own length.
        """
        limits = RESOLVED * others.products.diagonal(dim1=1, dim2=2).amax(1)
        squared = self.squared_distances
        return ((squared == 0) | (squared >= limits[:, None, None])).flatten(1).all(1)


def _first_equal(matrices: Tensor) -> Tensor:
    """[t, m] the first row of each matrix [t, m, n] that is equal to this one."""
    overlaps = torch.bmm(matrices, matrices.transpose(1, 2))
    squares = overlaps.diagonal(dim1=1, dim2=2)
    largest = torch.maximum(squares[:, :, None], squares[:, None])
    return (overlaps >= (1 - RESOLVED) * largest).to(torch.uint8).argmax(2)
