"""From rows to their Gram matrix: one fast pass, and careful ones only where they are needed."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from holdfast.checks import check_finite_majority, failure
from holdfast.geometry import _kernels
from holdfast.geometry._central import most_central
from holdfast.geometry._gram import Gram, squared_distances
from holdfast.geometry._holders import Holders

CLOSE = 1e-3
"""Squared distances below this share of the squared norms have lost digits in float32."""

# Float32 angles to larger rows are too coarse for what these add to an objective.
OUTSIZED = 1e8
"""Limit of a squared norm, in multiples of the median one."""

MANY_LOST = 1e18
"""So many squares below the smallest normal number may be lost: 1e12 columns, each to 1e-6."""

# Larger rows overflow float64 once squared.
IN_RANGE = 2.0**450
"""Rows larger than this multiple of a usual row count as infinite."""

FEW_COLUMNS = 64
"""Up to this many columns, the cost of the careful pass is negligible compared with the solvers."""

FAST_PRECISION = 1e-8
"""Relative error of an objective from float32 tiles; measured errors are at most about 1e-9."""


class Measurable(Protocol):
    """Rows with a fast and a careful way to compute their inner products."""

    n: int
    d: int
    dtype: torch.dtype
    device: torch.device
    holders: Holders

    @property
    def n_columns(self) -> int: ...

    def products(self, references: Tensor) -> Tensor: ...
    def exact_products(self, references: Tensor, *, center: int | None, scale: float) -> Tensor: ...

    # NaN must remain NaN, also in a maximum over several holders of columns.
    def magnitudes(self) -> Tensor: ...
    def are_equal(self, i: int, j: int) -> bool: ...
    def keep(self, indices: Tensor) -> "Measurable": ...


def measure(
    rows: Measurable, references: Sequence[Tensor] = (), row_weights: Tensor | None = None
) -> Gram:
    """The Gram matrix of `rows`, `references` and the origin.

    Clean rows take one pass and one transfer to the host. Its result shows all cases that need more
    care: a non-finite, vanishing or outsized squared norm (NaN, infinity, overflow, underflow), or
    distances that are small compared with the norms (cancellation). Only these take further passes
    in float64 about a central row; `row_weights` [n] define the majority that it is central to.
    """
    if references:
        others = torch.stack([*references])
    else:
        others = torch.empty(0, rows.d, dtype=rows.dtype, device=rows.device)
    # The fast pass is about the origin, whose own products are zero.
    products = torch.nn.functional.pad(rows.products(others).cpu().double(), (0, 1, 0, 1))
    products = 0.5 * (products + products.T)  # rounding differs between the two triangles
    working = _kernels.working_dtype(rows.dtype)
    gram = Gram(
        products=products,
        kept=torch.arange(rows.n),
        precision=product_error(rows.n_columns, working),
        rounding=sum_error(rows.n, working, rows.dtype),
        underflow=sum_underflow(rows.n, rows.n_columns, working, rows.dtype),
    )
    # Rows with few columns may well lie on a line, where a median depends on the last digits.
    if rows.n_columns > FEW_COLUMNS or rows.dtype is torch.float64:
        if is_trustworthy(gram, rows.dtype):
            return gram
        labeled = _with_equal_rows_labeled(rows, gram)
        if labeled is not None:
            return labeled
    return _measure_carefully(rows, others, row_weights)


def _with_equal_rows_labeled(rows: Measurable, gram: Gram) -> Gram | None:
    """The Gram matrix with the same products for rows that are equal; None if others are close.

    Attackers often send equal rows, which alone should not require the careful pass.
    """
    close = gram.squared_distances < CLOSE * gram.products.diagonal()[: rows.n]
    labels = torch.arange(rows.n)
    for j in range(1, rows.n):
        candidates = torch.nonzero(close[j, :j] & (labels[:j] == torch.arange(j)))[:, 0]
        # Two rows that are close and not equal decide: only the careful pass tells them apart.
        if len(candidates) > 1 or (len(candidates) and not rows.are_equal(int(candidates[0]), j)):
            return None
        labels[j] = int(candidates[0]) if len(candidates) else j
    distinct = torch.unique(labels)
    if len(distinct) == rows.n:
        return None
    others = torch.arange(rows.n, len(gram.products))
    chosen, index = torch.cat([distinct, others]), torch.cat([labels, others])
    reduced = Gram(products=gram.products[chosen][:, chosen], kept=distinct)
    if not is_trustworthy(reduced, rows.dtype):
        return None
    return replace(gram, products=gram.products[index][:, index], same=labels)


def is_trustworthy(gram: Gram, dtype: torch.dtype) -> bool:
    """Whether inner products of rows about the origin have lost no digits that matter."""
    squares = gram.products.diagonal()[:-1]
    if not (bool(torch.isfinite(gram.products).all()) and norms_in_safe_range(squares, dtype)):
        return False
    distances = gram.all_squared_distances + torch.diag(squares)
    return bool((distances >= CLOSE * torch.maximum(squares[:, None], squares[None, :])).all())


def norms_in_safe_range(squares: Tensor, dtype: torch.dtype) -> bool:
    """Whether squared norms [n] of rows are finite, not too small, not outsized."""
    # Below the lower limit, squares of entries may have underflowed. The number of columns has no
    # part in it: a holder of some columns does not know how many there are.
    smallest_normal = torch.finfo(_kernels.working_dtype(dtype)).tiny
    smallest, largest = MANY_LOST * smallest_normal, OUTSIZED * squares.median()
    return bool((torch.isfinite(squares) & (squares > smallest) & (squares <= largest)).all())


def _measure_carefully(rows: Measurable, others: Tensor, row_weights: Tensor | None) -> Gram:
    magnitudes = rows.magnitudes().to(_kernels.wide_dtype(rows.device)).cpu().double()
    if not rows.holders.all(bool(torch.isfinite(others).all())):
        raise failure("reference", "be finite", "NaN or infinity")
    check_finite_majority(torch.isfinite(magnitudes))
    usual = _usual_magnitude(magnitudes)
    kept = torch.nonzero(magnitudes <= IN_RANGE * usual)[:, 0]  # NaN compares false
    finite = rows if len(kept) == rows.n else rows.keep(kept)
    points = torch.cat([others, others.new_zeros(1, rows.d)])
    # Squares of float32 always fit float64; float64 rows of unusual size need a unit of their own.
    plain = rows.dtype is not torch.float64 or 1e-10 < float(usual) < 1e10
    unit = 1.0 if plain else 2.0 ** max(-1000, round(torch.log2(usual).item()))

    # The first careful pass finds a row in the majority. Seen from there, the majority's distances
    # are not small differences of large numbers, however far the majority is from the origin.
    uncentered = finite.exact_products(points, center=None, scale=1.0 / unit).cpu()
    weights = None if row_weights is None else row_weights[kept]
    center = most_central(squared_distances(uncentered[: len(kept), : len(kept)]).sqrt(), weights)
    products = finite.exact_products(points, center=center, scale=1.0 / unit).cpu()
    same = torch.arange(len(kept))
    same[products.diagonal()[: len(kept)] == 0] = center  # equal to the center in every column
    return Gram(
        products,
        kept,
        n_lost=rows.n - len(kept),
        unit=unit,
        exact=True,
        precision=product_error(rows.n_columns, torch.float64),
        rounding=sum_error(rows.n, torch.float64, rows.dtype),
        underflow=sum_underflow(rows.n, rows.n_columns, torch.float64, rows.dtype) / unit,
        same=same,
        uncentered=uncentered,
    )


def product_error(d: int, dtype: torch.dtype) -> float:
    """A bound on the error of an inner product of d terms, relative to the norms."""
    # Errors of sums are random walks, and products of float32 are summed by tiles; only equal terms
    # all round the same way. Over rows of many kinds, constant ones among them, the largest error
    # measured is 0.85 of this in float32 and 0.6 of it in float64.
    n_terms = min(d, 4096 if dtype is torch.float64 else _kernels.SUMMED)
    return torch.finfo(dtype).eps * (1 + math.sqrt(n_terms))


def sum_error(n: int, summed: torch.dtype, returned: torch.dtype) -> float:
    """A bound on the rounding of a sum of n rows, relative to the sum of their norms."""
    # Weights and products are rounded, then n - 1 sums, at last the result in the rows' dtype.
    return 0.5 * ((n + 1) * torch.finfo(summed).eps + torch.finfo(returned).eps)


def _usual_magnitude(magnitudes: Tensor) -> Tensor:
    """The median magnitude of the finite rows, or one if that is zero."""
    finite = magnitudes[torch.isfinite(magnitudes)]
    usual = finite.median()
    return usual if bool(usual > 0) else torch.ones_like(usual)


def sum_underflow(n: int, d: int, summed: torch.dtype, returned: torch.dtype) -> float:
    """What a sum of n rows of d columns may lose to entries that are not normal numbers."""
    smallest = [torch.finfo(one).tiny * torch.finfo(one).eps for one in (summed, returned)]
    return (n * smallest[0] + smallest[1]) * math.sqrt(d)
