"""Geometric medians of many small sets of rows at once, certified one by one."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from holdfast.geometry._certificate import WORST_GAP
from holdfast.geometry._gram import SAME
from holdfast.geometry._kernels import full_precision
from holdfast.geometry._measure import MANY_LOST, product_error
from holdfast.geometry._row_set_solver import TIE, Iterates, RowSetSolver
from holdfast.geometry._row_sets import RowSets
from holdfast.geometry._solution import Outcome, Solutions

MANY_STEPS = 12
"""Sets that take more Newton steps are few, and solved one by one."""


def geometric_medians(
    sets: RowSets,
    *,
    row_weights: Tensor | None = None,
    tolerance: float = 1e-6,
    max_steps: int = 100,
) -> Solutions:
    """The geometric median of each of the sets, as :func:`geometric_median` finds that of one.

    Rows are read in their own precision first, which certifies most sets of ordinary rows, then the
    others in float64 about a central row. Sets that are not certified to the tolerance (lost
    digits, rows on a line, ties between rows) are not certain. A set of which only the inner
    products are known is certain if they certify its median; where all weight is on a row, distances
    that are lost in rounding count as zero.
    """
    n, steps = sets.n, min(max_steps, MANY_STEPS)
    eta = row_weights
    if eta is None:
        eta = torch.full((n,), 1.0 / n, dtype=torch.float64)
    if sets.rows is None:
        found = _medians(sets.products, eta, precision=sets.precision, max_steps=steps)
        return _solutions(found, found.gaps <= tolerance, None)
    rows, dtype = sets.rows, sets.rows.dtype
    found = _medians(
        torch.bmm(rows, rows.transpose(1, 2)),
        eta,
        rows=rows,
        rounding=_sum_error(n, dtype, sets.dtype),
        precision=product_error(rows.shape[2], dtype),
        max_steps=steps,
    )
    exact = found.gaps > tolerance
    found = replace(found, weights=found.weights.double())
    again = torch.nonzero(exact)[:, 0]
    if len(again):
        centered, origins = sets.about_central_rows(again, eta)
        finer = _medians(
            torch.bmm(centered, centered.transpose(1, 2)),
            eta,
            rows=centered,
            origins=origins,
            rounding=_sum_error(n, torch.float64, sets.dtype),
            precision=sets.precision,
            max_steps=steps,
        )
        found.weights[again], found.gaps[again] = finer.weights, finer.gaps
        found = replace(found, steps=max(found.steps, finer.steps))
    return _solutions(found, found.gaps <= tolerance, exact)


def _solutions(found: "_Medians", is_certain: Tensor, exact: Tensor | None) -> Solutions:
    is_exact = bool((found.gaps[is_certain] == 0).all())
    return Solutions(
        found.weights,
        is_certain,
        Outcome.EXACT if is_exact else Outcome.CERTIFIED,
        found.steps,
        found.gaps,
        rejects=False,
        exact=exact,
    )


def _sum_error(n: int, summed: torch.dtype, returned: torch.dtype) -> float:
    """A bound on the rounding of a sum of n rows, relative to the sum of their norms."""
    return 0.5 * ((n + 1) * torch.finfo(summed).eps + torch.finfo(returned).eps)


@dataclass(frozen=True, eq=False)
class _Medians:
    """Weights of many geometric medians.

    Attributes:
        weights: [t, n] coefficients of the rows, in the dtype of the products.
        gaps: [t] float64, certified as :meth:`Certificate.gap`; infinite where nothing is certain.
        steps: the largest number of Newton steps.
    """

    weights: Tensor
    gaps: Tensor
    steps: int


def _medians(
    products: Tensor,
    eta: Tensor,
    *,
    rows: Tensor | None = None,
    origins: Tensor | None = None,
    rounding: float = 0.0,
    precision: float,
    max_steps: int,
) -> _Medians:
    """The medians of t sets of n rows with inner products [t, n, n], each set on its own.

    As :func:`geometric_median` takes Newton steps in Gram space, but solves for them by a few
    conjugate gradients, and gives up where it is not certain: on sets with lost digits, on rows of
    a line, on ties. These have an infinite gap, or one above the tolerance, and should be solved
    one by one.

    Args:
        products: [t, n, n] about any point of each set, float32 or float64; entries that are not
            finite make their set uncertain.
        eta: [n] row weights with sum 1.
        rows: [t, n, w] the rows about the same points. With them the gradient and the distances
            from a row are found directly, so that float32 is enough for a small gap.
        origins: [t] distances of these points from the origin; 0 by default.
        rounding: bound on the rounding of a sum of rows, relative to the sum of their norms.
        precision: bound on the errors of the products, relative to the norms.
        max_steps: the largest number of Newton steps.
    """
    eta = eta.to(products)
    with full_precision():
        solver = RowSetSolver(products, eta, precision)
        weights, nearest, steps = solver.solve(max_steps)
        gaps = _Certificates(solver, rows, origins, rounding).gaps(weights)
        _take_optimal_rows(solver, rows, nearest, weights, gaps)
    # An overflow may have made any of them NaN.
    gaps = torch.where(solver.in_range & (gaps >= 0), gaps, torch.inf)
    return _Medians(weights, gaps, steps)


class _Certificates:
    """Bounds on the gaps of points of all sets: :class:`Certificate` for points off the rows."""

    def __init__(
        self, solver: RowSetSolver, rows: Tensor | None, origins: Tensor | None, rounding: float
    ) -> None:
        self._solver, self._rows, self._origins, self._rounding = solver, rows, origins, rounding

    def gaps(self, weights: Tensor) -> Tensor:
        """[t] bounds on the relative gaps at the points with these weights [t, n]."""
        solver, eta = self._solver, self._solver.eta
        at = Iterates(solver, weights)
        size = (weights * solver.lengths).sum(1, keepdim=True)
        # The largest relative error of a squared distance stands for all of them. Where it is so
        # large that a distance may be lost, nothing is certain.
        relative = solver.precision * (solver.lengths + size).square() / at.distances.square()
        error = relative.amax(1)
        slope = self._slopes(at, weights, size) + 0.54 * (relative @ eta)
        low, high = (1 - error).clamp(min=0).sqrt(), (1 + error).sqrt()
        near, radius = _nearer_half_and_bound(at.distances, eta)
        radius = radius * high
        smallest = at.total[:, 0] * (1 - 5 * error) - self._largest_eigenvalues(at)
        growth = (slope / (smallest.clamp(min=0) * low)).square()
        # excess <= growth / 2: the bound that is quadratic in the gradient, see `Certificate.gap`.
        squared_pulls = at.pulls / at.distances * (at.distances * high[:, None] + radius[:, None])
        second_order = 0.5 * growth * squared_pulls.sum(1)
        bound = torch.minimum(slope * radius, second_order.nan_to_num(nan=torch.inf))
        origin = 0.0 if self._origins is None else self._origins
        rounding = self._rounding * (size[:, 0] + origin)
        bend = 0.5 * rounding.square() * at.total[:, 0] / low
        gap = (bound + slope * rounding + bend) / (near * low - rounding).clamp(min=solver.tiny)
        gap = torch.where(error < 0.25, gap, torch.inf)
        return gap.double().clamp(max=WORST_GAP)

    def _slopes(self, at: Iterates, weights: Tensor, size: Tensor) -> Tensor:
        """[t] bounds on the norm of the gradient, apart from the errors of the distances."""
        coefficients = at.pulls - at.total * weights
        lengths, eps = self._solver.lengths, torch.finfo(weights.dtype).eps
        if self._rows is None:
            square = (coefficients * self._solver.times(coefficients)).sum(1)
            loose = (coefficients.abs() * lengths).sum(1)
            norm = (square.clamp(min=0) + self._solver.precision * loose.square()).sqrt()
        else:
            # The sum itself has errors of first order, where its square has those of the products.
            norm = torch.bmm(coefficients[:, None], self._rows)[:, 0].norm(dim=1)
        doubt = (at.pulls * lengths).sum(1) + (at.total * size)[:, 0]
        return norm + (weights.shape[1] + 3) * eps * doubt

    def _largest_eigenvalues(self, at: Iterates) -> Tensor:
        """[t] upper bounds on the largest eigenvalues of V V^T, by the Frobenius norm of V^T V."""
        seen = self._solver.products - at.image[:, None] - (at.image - at.square)[:, :, None]
        shares = at.pulls / at.distances.square()
        return (torch.bmm(seen.square_(), shares[:, :, None])[:, :, 0] * shares).sum(1).sqrt()


def _nearer_half_and_bound(distances: Tensor, eta: Tensor) -> tuple[Tensor, Tensor]:
    """[t] sums of the nearer half of the distances [t, n], and bounds on how far the median is.

    See `nearer_half` and `distance_bound`, which these are for many sets.
    """
    ordered, order = distances.sort(dim=1)
    weights = eta[order]
    shares = weights.cumsum(1)
    is_near = shares - weights < 0.5 * (1 - 1e-6)
    near = (weights * ordered).where(is_near, 0.0).sum(1)
    excess = 2 * shares - 1
    bounds = (2 * shares * ordered / excess).where(excess > 1e-6, torch.inf)
    return near, bounds.amin(1)


def _take_optimal_rows(
    solver: RowSetSolver,
    rows: Tensor | None,
    nearest: Tensor,
    weights: Tensor,
    gaps: Tensor,
) -> None:
    """Put all weight on the nearest row where that is optimal; change `weights` and `gaps` so."""
    chosen = torch.nonzero((nearest >= 0) & solver.in_range)[:, 0]
    if len(chosen) == 0:
        return
    each, position = torch.arange(len(chosen)), nearest[chosen]
    eta, eps = solver.eta, torch.finfo(weights.dtype).eps
    if rows is None:
        column = solver.products[chosen, position]
        square = solver.squares[chosen, position, None]
        squared = solver.squares[chosen] + square - 2 * column
        here = squared <= SAME * (solver.squares[chosen] + square)
        here[each, position] = True
        pulls = torch.where(here, 0.0, eta / squared.clamp(min=solver.tiny).sqrt())
        coefficients = pulls.clone()
        coefficients[each, position] -= pulls.sum(1)
        image = torch.bmm(solver.products[chosen], coefficients[:, :, None])[:, :, 0]
        force = (coefficients * image).sum(1).clamp(min=0).sqrt()
        lost = torch.zeros_like(force, dtype=torch.bool)
    else:
        found = rows[chosen]
        # Differences of rows are exact to the last bit of each entry, and zero for equal rows only.
        found = found - found[each, position][:, None]
        norms = found.norm(dim=2)
        here = norms == 0
        # A norm of zero, or one below the normal range of squares, may be an underflow.
        small = norms.square() <= MANY_LOST * solver.tiny
        lost = (small & (found.abs().amax(2) > 0)).any(1) if bool(small.any()) else small.any(1)
        pulls = torch.where(here, 0.0, eta / norms)
        force = torch.bmm(pulls[:, None], found)[:, 0].norm(dim=1)
        force += (len(eta) + 3 + found.shape[2] ** 0.5) * eps
    own = torch.where(here, eta, 0.0).sum(1)
    # Between the two stands a tie, of which the careful way takes the middle.
    half = (own - 0.5).abs() <= TIE * own
    is_row = ~lost & (force <= own * (1 - TIE)) & ~(half)
    taken = chosen[is_row]
    weights[taken] = 0.0
    weights[taken, position[is_row]] = 1.0
    gaps[taken] = 0.0
    gaps[chosen[~is_row]] = torch.inf
