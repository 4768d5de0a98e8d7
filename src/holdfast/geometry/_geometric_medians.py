"""Geometric medians of many small sets of rows at once, certified one by one."""

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from holdfast.geometry._central import weights_or_equal
from holdfast.geometry._gram import SAME
from holdfast.geometry._kernels import full_precision
from holdfast.geometry._measure import MANY_LOST, product_error, sum_error, sum_underflow
from holdfast.geometry._row_set_certificates import Certificates
from holdfast.geometry._row_set_solver import Iterates, RowSetSolver
from holdfast.geometry._row_sets import RowSets
from holdfast.geometry._solution import Outcome, Solutions

N_WEISZFELD = {6: 5, 12: 3}
"""Weiszfeld steps that most sets of at most so many rows in general position need; else 2."""

GOOD = 0.1
"""Newton steps below this share of the tolerance are not worth their time."""

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
    products are known is certain if they certify its median; where all weight is on a row,
    distances that are lost in rounding count as zero.
    """
    n, eta = sets.n, weights_or_equal(row_weights, sets.n)
    solve = partial(_medians, tolerance=tolerance, max_steps=min(max_steps, MANY_STEPS))
    if sets.rows is None:
        found = solve(Certificates(RowSetSolver(sets.products, eta, sets.precision)))
        return _solutions(found, found.gaps <= tolerance, None)
    rows, dtype, width = sets.rows, sets.rows.dtype, sets.rows.shape[2]
    products = torch.bmm(rows, rows.transpose(1, 2))
    certificates = Certificates(
        RowSetSolver(products, eta, product_error(width, dtype)),
        rows,
        rounding=sum_error(n, dtype, sets.dtype),
        underflow=sum_underflow(n, width, dtype, sets.dtype),
    )
    found = solve(certificates)
    exact = found.gaps > tolerance
    found = replace(found, weights=found.weights.double())
    again = torch.nonzero(exact)[:, 0]
    if len(again):
        centered, origins = sets.about_central_rows(again, eta)
        products = torch.bmm(centered, centered.transpose(1, 2))
        certificates = Certificates(
            RowSetSolver(products, eta, sets.precision),
            centered,
            origins,
            rounding=sum_error(n, torch.float64, sets.dtype),
            underflow=sum_underflow(n, width, torch.float64, sets.dtype),
        )
        finer = solve(certificates)
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
        rejected=torch.zeros_like(found.weights, dtype=torch.bool),
        exact=exact,
    )


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


def _medians(certificates: Certificates, *, tolerance: float, max_steps: int) -> _Medians:
    """The medians of t sets of n rows, each set on its own.

    As :func:`geometric_median` takes Newton steps in Gram space, but solves for them by a few
    conjugate gradients, and does not solve sets with lost digits, with rows on a line, or with
    ties. These have an infinite gap, or one above the tolerance, and should be solved one by one.

    Args:
        certificates: the sets.
        tolerance: the gap to reach.
        max_steps: the largest number of Newton steps.
    """
    solver, rows, n_sets = certificates.solver, certificates.rows, len(certificates.solver.products)
    n_weiszfeld = next((few for most, few in N_WEISZFELD.items() if len(solver.eta) <= most), 2)
    with full_precision():
        start = solver.start()
        weights, gaps = start.weights, torch.full((n_sets,), torch.inf, dtype=torch.float64)
        # Rows in float64 are asked for all of their digits, which only Newton steps give.
        if rows is None or rows.dtype is not torch.float64:
            quick = torch.nonzero(solver.in_range & ~start.are_crowded)[:, 0]
            if len(quick) == n_sets:
                weights = solver.weiszfeld_steps(start, n_weiszfeld)
                gaps = certificates.gaps(weights, GOOD * tolerance)
            elif len(quick):
                some = certificates.of(quick)
                at = Iterates(some.solver, weights[quick])
                found = some.solver.weiszfeld_steps(at, n_weiszfeld)
                weights[quick], gaps[quick] = found, some.gaps(found, GOOD * tolerance)
        left, n_steps = torch.nonzero(solver.in_range & ~(gaps <= GOOD * tolerance))[:, 0], 0
        if len(left):
            found, better, n_steps = _with_care(certificates.of(left), weights[left], max_steps)
            weights[left], gaps[left] = found, better
    # An overflow may have made any of them NaN.
    gaps = torch.where(solver.in_range & (gaps >= 0), gaps, torch.inf)
    return _Medians(weights, gaps, n_steps)


def _with_care(
    certificates: Certificates, weights: Tensor, max_steps: int
) -> tuple[Tensor, Tensor, int]:
    """[t, n] weights by Newton steps or of an optimal row, their gaps, and the number of steps."""
    if certificates.rows is not None:
        at = Iterates(certificates.solver, weights)
        certificates = certificates.about(at.distances.argmin(1))
    solver, n_steps = certificates.solver, 0
    weights, nearest = solver.beside_nearest_row(Iterates(solver, weights))
    gaps = torch.full((len(weights),), torch.inf, dtype=torch.float64)
    _take_optimal_rows(certificates, nearest, weights, gaps)
    off_rows = torch.nonzero(nearest < 0)[:, 0]
    if len(off_rows):
        some = certificates.of(off_rows)
        found, n_steps = some.solver.newton_steps(weights[off_rows], max_steps)
        weights[off_rows], gaps[off_rows] = found, some.gaps(found)
    return weights, torch.where(solver.in_range, gaps, torch.inf), n_steps


def _take_optimal_rows(
    certificates: Certificates, nearest: Tensor, weights: Tensor, gaps: Tensor
) -> None:
    """Put all weight on the nearest row where that is optimal; change `weights` and `gaps` so."""
    solver, rows = certificates.solver, certificates.rows
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
        found = rows if len(chosen) == len(rows) else rows[chosen]
        norms = solver.lengths[chosen]
        if bool(norms[each, position].any()):  # the base point is another row
            found = found - found[each, position][:, None]
            norms = found.norm(dim=2)
        here = norms == 0
        # A norm below the normal range of squares, or of zero, may be an underflow.
        small = norms.square() <= MANY_LOST * solver.tiny
        lost = (small & (found.any(2) if bool(found[here].any()) else ~here)).any(1)
        pulls = torch.where(here, 0.0, eta / norms)
        force = torch.bmm(pulls[:, None], found)[:, 0].norm(dim=1)
        force += (len(eta) + 3 + found.shape[2] ** 0.5) * eps
    own = torch.where(here, eta, 0.0).sum(1)
    # If both are equal, there may be many medians, of which the careful way takes the middle one.
    is_row = ~lost & (force <= own * (1 - 16 * eps))
    taken = chosen[is_row]
    weights[taken] = 0.0
    weights[taken, position[is_row]] = 1.0
    gaps[taken] = 0.0
