"""Rows of which only the inner products are known."""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from holdfast.checks import failure
from holdfast.geometry._gram import Gram
from holdfast.geometry._rows import Rows


@final
class GramRows(Rows):
    """n rows with inner products [n, n] about the origin, and without columns: d is 0.

    Example:
        >>> GramRows(torch.eye(3)).gram().norms
        tensor([1., 1., 1.], dtype=torch.float64)
    """

    def __init__(self, products: Tensor) -> None:
        if (
            not isinstance(products, Tensor)
            or products.ndim != 2
            or not products.is_floating_point()
        ):
            got = tuple(products.shape) if isinstance(products, Tensor) else type(products).__name__
            raise failure("gram", "be a floating tensor [n, n]", got)
        if products.shape[0] != products.shape[1] or len(products) == 0:
            raise failure("gram", "have as many rows as columns, at least 1", tuple(products.shape))
        if not bool(torch.isfinite(products).all()):
            raise failure("gram", "be finite", "NaN or infinity")
        if bool((products.diagonal() < 0).any()):
            raise failure("gram", "have squared norms on its diagonal", "a negative entry")
        self._products = products.detach().to("cpu", torch.float64)
        self.n, self.d, self.dtype, self.device = len(products), 0, products.dtype, products.device

    def gram(self, references: Sequence[Tensor] = (), row_weights: Tensor | None = None) -> Gram:
        if references:
            raise failure("reference", "be left out, because only inner products are known", "one")
        padded = torch.nn.functional.pad(self._products, (0, 1, 0, 1))
        return Gram(products=0.5 * (padded + padded.T), kept=torch.arange(self.n))

    def combine(self, weights: Tensor, *, exact: bool = False) -> Tensor:
        return torch.empty(0, dtype=self.dtype, device=self.device)

    def keep(self, indices: Tensor) -> "GramRows":
        return GramRows(self._products[indices][:, indices])
