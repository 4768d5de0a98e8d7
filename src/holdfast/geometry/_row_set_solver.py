"""Newton steps toward the geometric medians of many small sets of rows at once."""

from copy import copy
from functools import cached_property
from typing import final

import torch
from torch import Tensor

from holdfast.geometry._gram import SAME
from holdfast.geometry._measure import MANY_LOST

N_CG = 3
"""Steps of conjugate gradients per Newton step: few eigenvalues of the Hessian stand out."""

SHORT = {torch.float32: 3e-4, torch.float64: 1e-5}
"""A Newton step of this share of the mean distance leaves an error of about its square."""

ARITHMETIC = 8.0
"""What sums over n weights add to the relative error of inner products, in units of rounding."""

TIE = {torch.float32: 3e-5, torch.float64: 1e-9}
"""If the weight of a row and the pull of the others agree to this share, it may be the median."""


CROWDED = {torch.float32: 1e-5, torch.float64: 1e-9}
"""Distances that differ by less than this share may be those of equal rows."""

SMALL = 1e6
"""Squared norms stay this far below the largest number, so that sums of them are finite."""


@final
class RowSetSolver:
    """The sets of rows, and Newton steps in all of them.

    Args:
        products: [t, n, n] inner products about any point of each set, float32 or float64; entries
            that are not finite make their set uncertain.
        eta: [n] row weights with sum 1.
        precision: bound on the errors of the products, relative to the norms.
    """

    def __init__(self, products: Tensor, eta: Tensor, precision: float) -> None:
        limits = torch.finfo(products.dtype)
        self.products, self.eta = products, eta.to(products)
        self.squares = products.diagonal(dim1=1, dim2=2).contiguous()
        self.lengths = self.squares.clamp(min=0).sqrt()
        self.measured, self.precision = precision, precision + ARITHMETIC * limits.eps
        self.tiny = limits.tiny
        # Squares of entries below the normal range may be lost; zero rows have lost nothing.
        smallest, largest = self.squares.amin(1), self.squares.amax(1)
        if bool((smallest == 0).any()):
            smallest = torch.where(self.squares == 0, torch.inf, self.squares).amin(1)
        # NaN compares false.
        self.in_range = (smallest > MANY_LOST * limits.tiny) & (largest < limits.max / SMALL)
        # Rounding may put a point on a row. The floor keeps that row's pull finite.
        self.floors = (1e-3 * self.precision) * self.squares + limits.tiny

    def times(self, vectors: Tensor) -> Tensor:
        """[t, n] the products times the vectors [t, n]."""
        return torch.bmm(self.products, vectors[:, :, None])[:, :, 0]

    def of(self, chosen: Tensor) -> "RowSetSolver":
        """The sets at `chosen` only."""
        if len(chosen) == len(self.products):
            return self
        some = copy(self)
        some.products, some.squares = self.products[chosen], self.squares[chosen]
        some.lengths, some.floors = self.lengths[chosen], self.floors[chosen]
        some.in_range = self.in_range[chosen]
        return some

    def start(self) -> "Iterates":
        """The Weiszfeld step from the base point: far rows count little."""
        lengths = self.lengths
        if lengths.dtype is torch.float64:
            # No row counts more than the middle one, so that a row at the base point does not count
            # alone. In float32, where no row is the base point, this is not worth its time.
            lengths = lengths.maximum(lengths.median(dim=1, keepdim=True).values)
        pulls = self.eta / lengths.clamp(min=self.tiny**0.5)
        return Iterates(self, pulls / pulls.sum(1, keepdim=True))

    def weiszfeld_steps(self, at: "Iterates", n_steps: int) -> Tensor:
        """[t, n] weights after so many Weiszfeld steps from there, extrapolated on the way.

        In general position a step leaves a tenth of the error, for a fifth of the work of a Newton
        step.
        """
        weights = at.weiszfeld
        for _ in range(n_steps - 1):
            before, at = at, Iterates(self, weights)
            weights = at.extrapolated(before)
        return Iterates(self, weights).weiszfeld  # without negative weights

    def newton_steps(self, weights: Tensor, max_steps: int) -> tuple[Tensor, int]:
        """[t, n] weights after Newton steps and a Weiszfeld step, and the number of the former."""
        out, active, state = weights.clone(), torch.arange(len(weights)), self
        n_steps = 0
        while n_steps < max_steps and len(active):
            n_steps += 1
            weights, is_last = Iterates(state, weights).newton_step()
            out[active] = weights
            left = torch.nonzero(~is_last)[:, 0]
            if len(left) < len(active):
                active, state, weights = active[left], state.of(left), weights[left]
        return Iterates(self, out).weiszfeld, n_steps

    def beside_nearest_row(self, at: "Iterates") -> tuple[Tensor, Tensor]:
        """[t, n] better weights, and [t] the row nearest to the point if it may be the median.

        The weights are those of the Vardi-Zhang step from that row if it is better than the point.
        The position is -1 where that row is not the median.
        """
        nearest = at.distances.argmin(1)
        each = torch.arange(len(nearest))
        column, square = self.products[each, nearest], self.squares[each, nearest, None]
        squared = self.squares + square - 2 * column
        here = squared <= self.same * (self.squares + square)
        here[each, nearest] = True
        distances = squared.clamp(min=self.tiny).sqrt()
        pulls = torch.where(here, 0.0, self.eta / distances)
        total = pulls.sum(1, keepdim=True)
        own = torch.where(here, self.eta, 0.0).sum(1)
        row = torch.zeros_like(pulls)
        row[each, nearest] = 1.0
        coefficients = pulls - total * row
        force = (coefficients * self.times(coefficients)).sum(1).clamp(min=0).sqrt()
        may_be = force <= own * (1 + TIE[own.dtype])
        keep = (own / force.clamp(min=self.tiny))[:, None].clamp(max=1.0)
        beside = pulls / total.clamp(min=self.tiny) * (1 - keep) + row * keep
        value = torch.where(here, 0.0, distances) @ self.eta
        better = value <= at.distances @ self.eta
        weights = torch.where(better[:, None], beside, at.weiszfeld)
        return weights, torch.where(may_be, nearest, -1)

    @property
    def same(self) -> float:
        """The share of squared norms below which a squared distance counts as zero."""
        return max(SAME, 4 * self.precision)


class Iterates:
    """One point of each set, by its weights [t, n]."""

    def __init__(self, solver: RowSetSolver, weights: Tensor) -> None:
        self.solver, self.weights = solver, weights
        self.image = solver.times(weights)
        self.square = (weights * self.image).sum(1, keepdim=True)
        self.squared = solver.squares - 2 * self.image + self.square
        self.distances = self.squared.maximum(solver.floors).sqrt()
        self.pulls = solver.eta / self.distances
        self.total = self.pulls.sum(1, keepdim=True)

    @cached_property
    def weiszfeld(self) -> Tensor:
        """[t, n] weights after the Weiszfeld step."""
        return self.pulls / self.total

    @property
    def are_crowded(self) -> Tensor:
        """Whether (bool [t]) two rows are nearest, as equal rows are: one may be the median."""
        nearest = self.distances.amin(1, keepdim=True)
        return (self.distances <= (1 + CROWDED[nearest.dtype]) * nearest).sum(1) > 1

    def toward(self, vectors: Tensor) -> Tensor:
        """[t, n] inner products of all x_i - y with the sum of vectors_j (x_j - y)."""
        sums = vectors.sum(1, keepdim=True)
        shift = (vectors * self.image).sum(1, keepdim=True) - sums * self.square
        return self.solver.times(vectors) - sums * self.image - shift

    def extrapolated(self, before: "Iterates") -> Tensor:
        """[t, n] weights after the Weiszfeld step, extrapolated from that before (Anderson)."""
        step = self.weiszfeld - self.weights
        change = step - (before.weiszfeld - before.weights)
        scaled = change * self.distances.square()
        most = (scaled * change).sum(1, keepdim=True).clamp(min=self.solver.tiny)
        factor = ((scaled * step).sum(1, keepdim=True) / most).clamp(-2.0, 0.5)
        return self.weiszfeld - factor * (self.weiszfeld - before.weiszfeld)

    def newton_step(self) -> tuple[Tensor, Tensor]:
        """[t, n] weights after the Newton step, and where (bool [t]) it is short enough to end."""
        # As in `geometric_median`: (total - V^T V) z = V^T r with columns V_i = roots_i (x_i - y).
        # Divided by the total, the matrix has eigenvalues in [0, 1], and few of them are small.
        roots = self.pulls.sqrt() / self.distances
        scaled = roots / self.total
        residual = scaled * self.toward(self.pulls)
        z, direction = torch.zeros_like(residual), residual
        square = (residual * residual).sum(1, keepdim=True)
        tiny = self.solver.tiny
        for _ in range(N_CG):
            image = direction - scaled * self.toward(roots * direction)
            curvature = (direction * image).sum(1, keepdim=True)
            length = square / curvature.clamp(min=tiny)
            z = z + length * direction
            residual = residual - length * image
            next_square = (residual * residual).sum(1, keepdim=True)
            direction = residual + next_square / square.clamp(min=tiny) * direction
            square = next_square
        moves = scaled * z
        weights = self.weiszfeld + moves - moves.sum(1, keepdim=True) * self.weights
        change = ((weights - self.weights) * self.distances).square().sum(1).sqrt()
        return weights, change <= SHORT[weights.dtype] * (self.distances @ self.solver.eta)
