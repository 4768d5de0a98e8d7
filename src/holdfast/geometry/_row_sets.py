"""Many small sets of rows, such as the tiles of some columns, and their inner products."""

from dataclasses import dataclass
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
