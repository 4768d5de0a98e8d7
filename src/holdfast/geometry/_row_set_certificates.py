"""How far combinations of rows are, at most, from the geometric medians of many small sets."""

from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from holdfast.geometry._certificate import WORST_GAP
from holdfast.geometry._row_set_solver import Iterates, RowSetSolver


@final
@dataclass(frozen=True, eq=False)
class Certificates:
    """Bounds on the gaps of points of all sets: :class:`Certificate` for points off the rows.

    Attributes:
        solver: the sets, seen about any point of each.
        rows: [t, n, w] the rows about the same points. With them the gradient and the distances
            from a row are found directly, so that float32 is enough for a small gap.
        origins: [t] distances of these points from the origin; 0 by default.
        rounding: bound on the rounding of a sum of rows, relative to the sum of their norms.
        underflow: bound on what such a sum loses, besides, below the normal range.
    """

    solver: RowSetSolver
    rows: Tensor | None = None
    origins: Tensor | None = None
    rounding: float = 0.0
    underflow: float = 0.0

    def of(self, chosen: Tensor) -> "Certificates":
        """The sets at `chosen` only."""
        if len(chosen) == len(self.solver.products):
            return self
        rows = None if self.rows is None else self.rows[chosen]
        origins = None if self.origins is None else self.origins[chosen]
        return replace(self, solver=self.solver.of(chosen), rows=rows, origins=origins)

    def about(self, nearest: Tensor) -> "Certificates":
        """The same with the rows at `nearest` [t] as base points; the rows must be known.

        Differences of rows are exact to the last bit of each entry, and zero for equal rows only,
        so that points close to such a row lose no digits, in float32 either.
        """
        assert self.rows is not None
        base = self.rows[torch.arange(len(nearest)), nearest]
        rows = self.rows - base[:, None]
        products = torch.bmm(rows, rows.transpose(1, 2))
        origins = torch.linalg.vector_norm(base, dim=1)
        if self.origins is not None:
            origins = origins + self.origins
        solver = RowSetSolver(products, self.solver.eta, self.solver.measured)
        return replace(self, solver=solver, rows=rows, origins=origins)

    def gaps(self, weights: Tensor, enough: float = 0.0) -> Tensor:
        """[t] bounds on the relative gaps at the points with these weights [t, n].

        Bounds above `enough` are made as small as they get.
        """
        solver = self.solver
        at = Iterates(solver, weights)
        size = (weights * solver.lengths).sum(1, keepdim=True)
        # The largest relative error of a squared distance stands for all of them. Where it is so
        # large that a distance may be lost, nothing is certain.
        relative = (solver.lengths + size).div_(at.distances).square_().mul_(solver.precision)
        error = relative.amax(1)
        slope = self._slopes(at, weights, size) + 0.54 * (relative @ solver.eta)
        low, high = (1 - error).clamp_(min=0).sqrt_(), (1 + error).sqrt_()
        smallest = at.total[:, 0] * (1 - 5 * error) - self._largest_eigenvalues(at, size)
        growth = (slope / (smallest.clamp_(min=0) * low)).square_()
        growth = torch.where(error < 0.25, growth, torch.nan)
        origin = 0.0 if self.origins is None else self.origins
        rounding = self.rounding * (size[:, 0] + origin) + self.underflow
        found = _Bounds(
            torch.stack([slope, growth, at.total[:, 0], low, high, rounding]),
            (at.pulls / at.distances).sum(1),
        )
        # Sorting takes more time than all of the rest, and few sets need it. Without it: no row is
        # farther than the farthest; and at most the weight h * total is within h of the point, so
        # that the nearer half has a weight of 1/4 beyond 1 / (4 * total).
        gaps = found.gaps(0.0625 / at.total[:, 0], 2 * at.distances.amax(1))
        again = torch.nonzero(~(gaps <= enough))[:, 0]
        if len(again):
            near, radius = _nearer_half_and_bound(at.distances[again], solver.eta)
            gaps[again] = found.of(again).gaps(near, radius)
        return gaps

    def _slopes(self, at: Iterates, weights: Tensor, size: Tensor) -> Tensor:
        """[t] bounds on the norm of the gradient, apart from the errors of the distances."""
        coefficients = at.pulls - at.total * weights
        lengths = self.solver.lengths
        if self.rows is None:
            square = (coefficients * self.solver.times(coefficients)).sum(1)
            loose = (coefficients.abs() * lengths).sum(1)
            norm = (square.clamp(min=0) + self.solver.precision * loose.square()).sqrt()
        else:
            # The sum itself has errors of first order, where its square has those of the products.
            norm = torch.bmm(coefficients[:, None], self.rows)[:, 0].norm(dim=1)
        doubt = (at.pulls * lengths).sum(1) + (at.total * size)[:, 0]
        return norm + weights_error(weights) * doubt

    def _largest_eigenvalues(self, at: Iterates, size: Tensor) -> Tensor:
        """[t] upper bounds on the largest eigenvalues of V V^T, by the Frobenius norm of V^T V."""
        # With the shares q = pulls / distances^2 its square is sum_ij q_i q_j (P_ij - c_i - c_j)^2,
        # where c_i = <x_i, y> - |y|^2 / 2. Multiplied out, it needs no matrix of differences.
        shares = at.pulls / at.distances.square()
        middle = at.image - 0.5 * at.square
        weighted = shares * middle
        squares = self.solver.products.square()
        image = torch.bmm(squares, shares[:, :, None])[:, :, 0]
        total = (image * shares).sum(1)
        total -= 4 * (weighted * self.solver.times(shares)).sum(1)
        total += 2 * (weighted * middle).sum(1) * shares.sum(1) + 2 * weighted.sum(1).square()
        # Rounding, relative to the sum of the squares of all terms.
        terms = (shares * (self.solver.lengths + size).square()).sum(1)
        doubt = 2 * weights_error(at.weights) * terms.square()
        return (total.clamp(min=0) + doubt).sqrt()


def weights_error(weights: Tensor) -> float:
    """What sums over the n entries of the weights [t, n] add to a relative error."""
    return (weights.shape[1] + 3) * torch.finfo(weights.dtype).eps


@dataclass(frozen=True, eq=False)
class _Bounds:
    """What the gaps of some points depend on, apart from the order of their distances.

    Attributes:
        known: [6, t] bounds on the norm of the gradient, its square over that of the curvature, the
            sum of pulls, ratios of the smallest and largest possible distances to those found, and
            bounds on the rounding.
        curvature: [t] the sum of the pulls over the distances.
    """

    known: Tensor
    curvature: Tensor

    def of(self, chosen: Tensor) -> "_Bounds":
        return _Bounds(self.known[:, chosen], self.curvature[chosen])

    def gaps(self, near: Tensor, radius: Tensor) -> Tensor:
        """[t] the gaps, with the sums of nearer halves and bounds on how far the medians are."""
        slope, growth, total, low, high, rounding = self.known
        radius = radius * high
        # excess <= growth / 2: the bound that is quadratic in the gradient, see `Certificate.gap`.
        second_order = 0.5 * growth * (total * high + self.curvature * radius)
        bound = torch.minimum(slope * radius, second_order)
        bend = 0.5 * rounding.square() * total / low
        scale = (near * low - rounding).clamp(min=torch.finfo(near.dtype).tiny)
        # The last factor is for the rounding of all this.
        gaps: Tensor = (bound + slope * rounding + bend) / scale * (1 + 1e-4)
        return gaps.double().clamp(max=WORST_GAP)


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
