"""Inner products of many rows, estimated from a few of their columns."""

from dataclasses import dataclass
from functools import cached_property
from typing import TypeGuard, final

import torch
from torch import Tensor

from holdfast.geometry._dense_rows import DenseRows
from holdfast.geometry._gram import squared_distances
from holdfast.geometry._holders import ALONE
from holdfast.geometry._measure import CLOSE, norms_in_safe_range
from holdfast.geometry._rows import Rows

# `python -m benchmarks crossover`
FEW_ROWS = 24
"""For fewer rows the Gram matrix is cheaper than a sketch with exact passes after it."""

SMALL = 2**20
"""With fewer entries the Gram matrix costs less than the many small steps of other ways."""

COLUMNS_PER_SAMPLED = 16
"""One column in 16 is sampled, and with n rows one in n / 4: at a cost of 0.4 means at most."""

COLUMNS_PER_ROW = 16
"""At least so many columns per row are sampled: cosines of rows are then 1 / sqrt(16 n) coarse."""


def pays_to_stream(rows: Rows | None) -> TypeGuard[DenseRows]:
    """Whether a few passes over the rows are likely to be faster than their Gram matrix."""
    # On an accelerator a Gram matrix is cheap, and each pass would wait for the host. Between
    # several holders of columns each pass would be one more exchange.
    return (
        isinstance(rows, DenseRows)
        and rows.holders is ALONE
        and rows.n >= FEW_ROWS
        and rows.n * rows.d >= SMALL
        and rows.device.type == "cpu"
        and rows.has_working_dtype
    )


def columns_per_sampled(n: int, d: int) -> int:
    """One column in this many is sampled from rows [n, d]."""
    return max(1, min(max(COLUMNS_PER_SAMPLED, n // 4), d // (COLUMNS_PER_ROW * n)))


@final
@dataclass(frozen=True, eq=False)
class Sketch:
    """Estimated inner products and exact lengths of rows.

    The sample of columns is always the same. Whoever knows it can hide anything from it but length,
    so nothing may be concluded from a sketch that an exact pass does not confirm.

    Attributes:
        squares: [n] squared norms of the rows, exact.
        sampled: [n, n] inner products estimated from a sample of columns.
        share: the share of columns that was sampled (the least one over tensors).
    """

    squares: Tensor
    sampled: Tensor
    share: float

    @classmethod
    def of(cls, rows: DenseRows, every: int) -> "Sketch | None":
        """The sketch of the rows from about one column in `every`.

        None if their norms are dangerous (as in :func:`measure`).
        """
        squares = rows.squared_norms()
        if not norms_in_safe_range(squares, rows.dtype):
            return None
        sampled, share = rows.sampled_products(every)
        return cls(squares, sampled, share)

    @cached_property
    def products(self) -> Tensor:
        """[n, n] estimated inner products of rows that have their exact lengths."""
        seen = self.sampled.diagonal()
        # A row of which the sample shows nothing stands at a right angle to the others.
        factors = torch.where(seen > 0, (self.squares / seen).sqrt(), 0.0)
        products = self.sampled * factors[:, None] * factors
        products.diagonal().copy_(self.squares)
        return products

    @cached_property
    def distances(self) -> Tensor:
        """[n, n] estimated distances between the rows."""
        return squared_distances(self.products).sqrt()

    def distances_from_row(self, index: int, products: Tensor) -> Tensor | None:
        """[n] exact distances from the row at `index`, from exact `products` [n] with it.

        None if float32 is too coarse for one of them.
        """
        square = self.squares[index]
        squared = self.squares - 2 * products + square
        squared[index] = 0.0
        is_accurate = squared >= CLOSE * torch.maximum(self.squares, square)
        is_accurate[index] = True
        return squared.sqrt() if bool(is_accurate.all()) else None
