"""How far combinations of rows are, at most, from the geometric medians of many small sets."""

from typing import final

import torch
from torch import Tensor

from holdfast.geometry._certificate import WORST_GAP
from holdfast.geometry._row_set_solver import Iterates, RowSetSolver


@final
class Certificates:
    """Bounds on the gaps of points of all sets: :class:`Certificate` for points off the rows."""

    def __init__(
        self, solver: RowSetSolver, rows: Tensor | None, origins: Tensor | None, rounding: float
    ) -> None:
        self.solver, self.rows, self._origins, self._rounding = solver, rows, origins, rounding

    def of(self, chosen: Tensor) -> "Certificates":
        """The sets at `chosen` only."""
        if len(chosen) == len(self.solver.products):
            return self
        rows = None if self.rows is None else self.rows[chosen]
        origins = None if self._origins is None else self._origins[chosen]
        return Certificates(self.solver.of(chosen), rows, origins, self._rounding)

    def gaps(self, weights: Tensor) -> Tensor:
        """[t] bounds on the relative gaps at the points with these weights [t, n]."""
        solver, eta = self.solver, self.solver.eta
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
        lengths, eps = self.solver.lengths, torch.finfo(weights.dtype).eps
        if self.rows is None:
            square = (coefficients * self.solver.times(coefficients)).sum(1)
            loose = (coefficients.abs() * lengths).sum(1)
            norm = (square.clamp(min=0) + self.solver.precision * loose.square()).sqrt()
        else:
            # The sum itself has errors of first order, where its square has those of the products.
            norm = torch.bmm(coefficients[:, None], self.rows)[:, 0].norm(dim=1)
        doubt = (at.pulls * lengths).sum(1) + (at.total * size)[:, 0]
        return norm + (weights.shape[1] + 3) * eps * doubt

    def _largest_eigenvalues(self, at: Iterates) -> Tensor:
        """[t] upper bounds on the largest eigenvalues of V V^T, by the Frobenius norm of V^T V."""
        # Inner products of the vectors x_i - y, by an update of rank two.
        ones = torch.ones_like(at.image)
        left = torch.stack([ones, at.image - at.square], dim=2)
        right = torch.stack([at.image, ones], dim=1)
        seen = torch.baddbmm(self.solver.products, left, right, alpha=-1)
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
