"""From rows to their Gram matrix: one fast pass, and careful ones only if the first shows that they are needed."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from holdfast.checks import check_finite_majority, failure
from holdfast.geometry import _kernels
from holdfast.geometry._central import most_central
from holdfast.geometry._gram import Gram, squared_distances

CLOSE = 1e-3
"""Squared distances below this share of the squared norms have lost digits in float32: centre the rows and measure again."""

OUTSIZED = 1e8
"""Rows whose squared norm is this many times the usual one: float32 angles to them are too coarse for what they add to an objective."""

IN_RANGE = 2.0**450
"""Rows this much larger than a usual row are beyond float64 once squared; they count as infinite."""

FAST_PRECISION = 1e-8
"""Relative error of an objective from float32 tiles; measured excesses are some 1e-9 at most."""


class Measurable(Protocol):
    """Rows whose inner products can be computed in a fast and in a careful way."""

    n: int
    d: int
    dtype: torch.dtype
    device: torch.device

    def products(self, references: Tensor) -> Tensor: ...
    def exact_products(self, references: Tensor, *, centre: int | None, scale: float) -> Tensor: ...
    def magnitudes(
        self,
    ) -> Tensor: ...  # NaN must survive, also a maximum over several holders of columns
    def keep(self, indices: Tensor) -> "Measurable": ...


def measure(
    rows: Measurable, references: Sequence[Tensor] = (), row_weights: Tensor | None = None
) -> Gram:
    """The Gram matrix of `rows`, `references` and the origin; `row_weights` [n] say what a majority is.

    The clean path is one pass over the rows and one transfer to the host. Everything that can be wrong shows on its result:
    a non-finite, vanishing or outsized squared norm (NaN, infinity, overflow, underflow), or distances that are small against
    the norms (cancellation). Only then follow passes in float64, about a central row.
    """
    others = (
        torch.stack([*references])
        if references
        else torch.empty(0, rows.d, dtype=rows.dtype, device=rows.device)
    )
    # The fast pass is about the origin itself, whose products are zero.
    products = torch.nn.functional.pad(rows.products(others).cpu().double(), (0, 1, 0, 1))
    products = 0.5 * (products + products.T)  # a product's rounding depends on the side
    precision = 0.0 if rows.dtype is torch.float64 else FAST_PRECISION
    gram = Gram(products=products, kept=torch.arange(rows.n), precision=precision)
    return (
        gram
        if is_trustworthy(gram, rows.d, rows.dtype)
        else _measure_carefully(rows, others, row_weights)
    )


def is_trustworthy(gram: Gram, d: int, dtype: torch.dtype) -> bool:
    """Whether inner products about the origin, formed in the working precision of rows [n, d], lost nothing that matters."""
    squares = gram.products.diagonal()[:-1]
    if not bool(torch.isfinite(gram.products).all()) or not are_tame(squares, d, dtype):
        return False
    distances = squared_distances(gram.products[:-1, :-1]) + torch.diag(squares)
    return bool((distances >= CLOSE * torch.maximum(squares[:, None], squares[None, :])).all())


def are_tame(squares: Tensor, d: int, dtype: torch.dtype) -> bool:
    """Whether squared norms [n] of rows of d entries are finite, none so small that squares of entries were lost, none outsized."""
    smallest_normal = torch.finfo(_kernels.working_dtype(dtype)).tiny
    smallest, largest = 1e6 * smallest_normal * d, OUTSIZED * squares.median()
    return bool((torch.isfinite(squares) & (squares > smallest) & (squares <= largest)).all())


def _measure_carefully(rows: Measurable, others: Tensor, row_weights: Tensor | None) -> Gram:
    magnitudes = rows.magnitudes().to(_kernels.wide_dtype(rows.device)).cpu().double()
    if not bool(torch.isfinite(others).all()):
        raise failure("reference", "be finite", "NaN or infinity")
    check_finite_majority(torch.isfinite(magnitudes))
    usual = _usual_magnitude(magnitudes)
    kept = torch.nonzero(magnitudes <= IN_RANGE * usual)[:, 0]  # NaN compares false
    finite = rows if len(kept) == rows.n else rows.keep(kept)
    points = torch.cat([others, others.new_zeros(1, rows.d)])
    # Squares of float32 always fit float64; float64 rows of unusual size are measured in their own unit.
    plain = rows.dtype is not torch.float64 or 1e-10 < float(usual) < 1e10
    unit = 1.0 if plain else 2.0 ** max(-1000, round(torch.log2(usual).item()))

    uncentred = finite.exact_products(points, centre=None, scale=1.0 / unit).cpu()
    weights = None if row_weights is None else row_weights[kept]
    centre = most_central(squared_distances(uncentred[: len(kept), : len(kept)]).sqrt(), weights)
    products = finite.exact_products(points, centre=centre, scale=1.0 / unit).cpu()
    return Gram(
        products=products,
        kept=kept,
        n_lost=rows.n - len(kept),
        unit=unit,
        exact=True,
        uncentred=uncentred,
    )


def _usual_magnitude(magnitudes: Tensor) -> Tensor:
    """The median magnitude of the finite rows; one where that is zero."""
    finite = magnitudes[torch.isfinite(magnitudes)]
    usual = finite.median()
    return usual if bool(usual > 0) else torch.ones_like(usual)
