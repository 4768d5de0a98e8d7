"""Rows that are given by their inner products only."""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from holdfast.checks import check_share, failure, shape_of
from holdfast.geometry._gram import Gram
from holdfast.geometry._measure import product_error
from holdfast.geometry._rows import Rows

MANY_COLUMNS = 2**40


@final
class GramRows(Rows):
    r"""n rows with inner products [n, n] about the origin, and without columns: d is 0.

    A certified gap is that of :math:`\sum_i w_i x_i` for the exact rows :math:`x_i` and the float64
    weights :math:`w_i`, if no product was further than `precision` times the norms of the two rows
    from the exact one before it was rounded to the dtype of `products`. The rounding itself is
    accounted for.

    Args:
        products: [n, n] the inner products, in any floating dtype.
        precision: bound on their errors before they were rounded, relative to the two norms. The
            default, 1.4e-14, is for sums in float64. Sums in float32 need more: with 2,000,000
            columns, `rows @ rows.T` has errors of 2e-4 for normal and 6e-3 for constant rows.

    Example:
        >>> GramRows(torch.eye(3)).gram().norms
        tensor([1., 1., 1.], dtype=torch.float64)
    """

    def __init__(self, products: Tensor, *, precision: float | None = None) -> None:
        if (
            not isinstance(products, Tensor)
            or products.ndim != 2
            or not products.is_floating_point()
        ):
            raise failure("gram", "be a floating tensor [n, n]", shape_of(products))
        if products.shape[0] != products.shape[1] or len(products) == 0:
            raise failure("gram", "have as many rows as columns, at least 1", tuple(products.shape))
        if not bool(torch.isfinite(products).all()):
            raise failure("gram", "be finite", "NaN or infinity")
        if bool((products.diagonal() < 0).any()):
            raise failure("gram", "have squared norms on its diagonal", "a negative entry")
        if precision is not None:
            check_share("precision", precision, below=0.25)
        self._products, self._precision = products.detach().cpu(), precision
        self.n, self.d, self.dtype, self.device = len(products), 0, products.dtype, products.device

    def gram(self, references: Sequence[Tensor] = (), row_weights: Tensor | None = None) -> Gram:
        if references:
            raise failure(
                "reference", "be None with GramRows, which have only inner products", "one"
            )
        padded = torch.nn.functional.pad(self._products.double(), (0, 1, 0, 1))
        products = 0.5 * (padded + padded.T)
        limits, summed = torch.finfo(self.dtype), self._precision
        if summed is None:
            summed = product_error(MANY_COLUMNS, torch.float64)
        precision = summed + 0.5 * limits.eps
        # Below the normal range of the dtype, rounding has an absolute error. It is at most
        # `precision` times the norms if each squared norm is larger by the ratio of the two.
        lost = limits.tiny * limits.eps / precision
        # The exact squared norms may be larger than the given ones, by their own relative error.
        squares = products.diagonal() / (1 - 2 * precision) + lost
        squares[-1] = 0.0  # the origin has no error
        return Gram(
            products=products,
            kept=torch.arange(self.n),
            precision=precision,
            sizes=squares.sqrt(),
        )

    def combine(self, weights: Tensor, *, exact: bool = False) -> Tensor:
        return torch.empty(0, dtype=self.dtype, device=self.device)

    def keep(self, indices: Tensor) -> "GramRows":
        return GramRows(self._products[indices][:, indices], precision=self._precision)
