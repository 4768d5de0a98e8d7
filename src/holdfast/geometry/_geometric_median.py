"""The geometric median in Gram space, certified."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from holdfast.geometry._central import FAR, half_weight_radius, most_central, nearer_half
from holdfast.geometry._gram import Gram, distances_from, squared_distances
from holdfast.geometry._solution import Outcome, Solution

EPSILON = 1e-15
"""The rounding of a difference of ones in float64."""

ROUNDING = 1e-13
"""Relative differences of objective values below this are rounding."""

TOO_SHORT = 1e-9
"""A step from a row shorter than this share of the way is lost in float64."""


def geometric_median(
    gram: Gram, *, row_weights: Tensor | None = None, tolerance: float = 1e-6, max_steps: int = 100
) -> Solution:
    r"""Weights w of the point :math:`y = \sum_i w_i x_i` with the least sum of distances.

    Minimizes :math:`f(y) = \sum_i \eta_i \|x_i - y\|`, where :math:`\eta_i` are the `row_weights`.
    The certified `gap` bounds :math:`f(y) - \min f` relative to the sum of the smallest distances
    that make up half of the weight, so that far rows do not make it look small.

    1. If a row is optimal, it is the medoid, and optimality can be checked there (Vardi and Zhang
       2000, equation 2.5): the pull :math:`\|R\|` of the other rows is at most the medoid's weight.
    2. Otherwise leave the medoid by their step. From there on no iterate can meet a row, because f
       is below its value at every row.
    3. Take Newton steps, halved until they lower f as much as the Weiszfeld step, or else that one.
       The Hessian is :math:`\sum_i \eta_i (I - u_i u_i^T) / d_i`, with distances :math:`d_i` and
       unit vectors :math:`u_i` from y to row i, so an n x n system gives the step h.
    4. Certify, by the smaller of two bounds. The vectors :math:`u_i - (I - u_i u_i^T) h / d_i` have
       weighted sum zero; divided by their largest norm s they are feasible for the dual problem,
       with value f(y) / s, so the gap is at most :math:`f(y) (1 - 1 / s)`, of second order in h.
       And f is convex, so the gap is at most :math:`\|\nabla f(y)\|` times the distance to the
       minimizer, which the nearest majority of rows bounds however far the others are.

    Costs O(n^3) per step and no pass over the rows; three to six steps are usual.
    """
    eta = row_weights
    if eta is None:
        eta = torch.full((gram.n,), 1.0 / gram.n, dtype=torch.float64)
    center = most_central(gram.distances, eta)
    usual = half_weight_radius(gram.distances[center], eta)
    if usual == 0.0:  # more than half of the weight is on one point
        weights = eta * (gram.distances[center] == 0)
        none = torch.zeros(gram.n, dtype=torch.bool)
        return Solution(weights / weights.sum(), Outcome.EXACT, 0, 0.0, rejected=none)
    # Far rows pull with unit vectors that hardly depend on their distance. Clipped, they no longer
    # swallow the digits of the distances that decide.
    products, factors = gram.with_far_rows_clipped(center, FAR * usual)
    problem = _Problem(products=products, eta=eta, factors=factors, center=center)
    found = problem.leave_medoid(tolerance)
    if isinstance(found, Tensor):
        found = problem.descend(found, tolerance, max_steps)
    return _limit_gap(gram, problem.in_rows(found), tolerance)


def _limit_gap(gram: Gram, solution: Solution, tolerance: float) -> Solution:
    """The solution with a gap of at least the precision of the inner products."""
    if solution.gap is None or solution.gap >= gram.precision or solution.outcome is Outcome.EXACT:
        return solution
    outcome = solution.outcome if gram.precision <= tolerance else Outcome.STALLED
    return replace(solution, gap=gram.precision, outcome=outcome)


@dataclass(frozen=True, eq=False)
class _Problem:
    """Clipped rows, seen from a central one."""

    # [n, n] inner products of the clipped rows about row `center`, [n] row weights, and [n] ratios
    # of clipped to true distances from the center.
    products: Tensor
    eta: Tensor
    factors: Tensor
    center: int

    def in_rows(self, solution: Solution) -> Solution:
        """The same point as a combination of the rows themselves."""
        # A clipped row is a mixture of itself and the center row, which gets the rest.
        weights = solution.weights * self.factors
        weights[self.center] += 1.0 - weights.sum()
        none = torch.zeros(len(weights), dtype=torch.bool)
        return replace(solution, weights=weights, rejected=none)

    def distances_from(self, weights: Tensor) -> Tensor:
        """[n] distances of the rows from the point with these weights."""
        # Rounding may put the point on a row. The floor keeps that row's pull finite.
        floor = 1e-24 * float(self.products.diagonal().max())
        return distances_from(self.products, weights, least=floor)

    def leave_medoid(self, tolerance: float) -> Solution | Tensor:
        """The medoid (the mean of several) if optimal, else weights after the Vardi-Zhang step."""
        distances = squared_distances(self.products).sqrt()
        values = distances @ self.eta
        best = values <= values.min() * (1 + ROUNDING)
        medoid = int(torch.nonzero(best)[0, 0])
        here = distances[medoid] == 0
        own_weight = float(self.eta[here].sum())
        attraction = torch.where(here, 0.0, self.eta / distances[medoid])
        force = self._norm_of(attraction, medoid)
        # The medoid is optimal if the force of the others does not exceed its own weight. The
        # excess is the slope of f along the best direction, so it also bounds the gap.
        excess = force - own_weight if force - own_weight > 10 * EPSILON * force else 0.0
        gap = excess * distance_bound(distances[medoid], self.eta)
        relative = relative_gap(gap, distances[medoid], self.eta)
        if relative <= tolerance or excess <= TOO_SHORT * force:
            weights = best * self.eta
            outcome = Outcome.EXACT if relative <= ROUNDING else Outcome.CERTIFIED
            outcome = outcome if relative <= tolerance else Outcome.STALLED
            return Solution(weights / weights.sum(), outcome, 0, relative)
        weights = attraction / attraction.sum() * (1 - own_weight / force)
        weights[medoid] += own_weight / force
        return weights

    def _norm_of(self, attraction: Tensor, medoid: int) -> float:
        """Norm of the sum of attraction[i] * (x_i - medoid)."""
        coefficients = attraction.clone()
        coefficients[medoid] -= attraction.sum()
        return math.sqrt(max(0.0, float(coefficients @ self.products @ coefficients)))

    def descend(self, weights: Tensor, tolerance: float, max_steps: int) -> Solution:
        """Newton or Weiszfeld steps from the point with these weights."""
        value, relative = math.inf, math.inf
        for step in range(1, max_steps + 1):
            distances = self.distances_from(weights)
            weiszfeld, newton, gap = self._steps(weights, distances)
            previous, relative = relative, relative_gap(gap, distances, self.eta)
            # The result is the Weiszfeld step: it never raises f, and has no negative weights.
            if relative <= tolerance:
                return Solution(weiszfeld, Outcome.CERTIFIED, step, relative)
            # Near the optimum f is flat in floating point; then the gap must still shrink.
            before, value = value, float(self.eta @ distances)
            if value >= before * (1 - EPSILON) and relative > 0.5 * previous:
                return Solution(weiszfeld, Outcome.STALLED, step, relative)
            weights = self._better(weights, weiszfeld, newton, ROUNDING * value)
        return Solution(weiszfeld, Outcome.OUT_OF_STEPS, max_steps, relative)

    def _better(self, start: Tensor, weiszfeld: Tensor, newton: Tensor, rounding: float) -> Tensor:
        """The longest of halved Newton steps that is no worse than the Weiszfeld step, or it."""
        # From a crowd of equal rows the full Newton step overshoots by far, while the Weiszfeld
        # step hardly moves.
        allowed = float(self.eta @ self.distances_from(weiszfeld)) + rounding
        for n_halvings in range(7):
            trial = start + 0.5**n_halvings * (newton - start)
            if float(self.eta @ self.distances_from(trial)) <= allowed:
                return trial
        return weiszfeld

    def _steps(self, weights: Tensor, distances: Tensor) -> tuple[Tensor, Tensor, float]:
        """Weights after a Weiszfeld step and after a Newton step, and the certified gap."""
        image = self.products @ weights
        # Inner products of the unit vectors u_i from the point to the rows.
        seen = self.products - image[:, None] - image[None, :] + weights @ image
        cosines = seen / distances[:, None] / distances
        attraction = self.eta / distances
        total = attraction.sum()
        weiszfeld = attraction / total
        residual = cosines @ self.eta  # <u_i, r>, where r = sum_i eta_i u_i is minus the gradient
        # Woodbury: H^-1 r = (r + U t) / total with (diag(total / attraction) - U^T U) t = U^T r.
        system = torch.diag(total * distances / self.eta) - cosines
        factor, failed = torch.linalg.cholesky_ex(system)
        if bool(failed):  # the rows lie on a line through the point
            return weiszfeld, weiszfeld, math.inf
        t = torch.cholesky_solve(residual[:, None], factor)[:, 0]
        along = (self.eta + t) / total  # h = sum_i along_i u_i
        toward = cosines @ along  # <u_i, h>
        squared_length = along @ toward
        # The dual vectors have squared norms 1 + across_i / d_i^2, with across_i the squared length
        # of h perpendicular to u_i. The largest of them is s^2 = 1 + growth.
        across = (squared_length - toward.square()).clamp(min=0) + EPSILON * squared_length.abs()
        growth = float((across / distances.square()).max())
        root = math.sqrt(1 + growth)
        # A squared slope below rounding counts as rounding.
        slope = math.sqrt(max(float(self.eta @ residual), EPSILON))
        # The dual bound is f (1 - 1 / s), without cancellation for small growth.
        dual = float(self.eta @ distances) * growth / (root * (1 + root))
        gap = min(dual, slope * distance_bound(distances, self.eta))
        # y + h = sum_i w_i x_i + sum_i along_i (x_i - y) / d_i, as weights of the rows.
        moves = along / distances
        newton = weights * (1 - moves.sum()) + moves
        return weiszfeld, newton, gap


def distance_bound(distances: Tensor, eta: Tensor) -> float:
    """An upper bound on the distance of the geometric median from a point at these distances."""
    # If a share a > 1/2 of the weight lies within r, then moving the point by t gains at most
    # 2 r - t for each row inside and at most t for each row outside: so t <= 2 a r / (2 a - 1).
    ordered, order = distances.sort()
    shares = eta[order].cumsum(0) / eta.sum()
    bounds = 2 * shares * ordered / (2 * shares - 1)
    return float(bounds[shares > 0.5 + ROUNDING].min())


def relative_gap(gap: float, distances: Tensor, eta: Tensor) -> float:
    """The gap relative to the weighted sum of the smallest distances of half of the weight."""
    if gap == 0.0:
        return 0.0
    good = float(nearer_half(distances, eta))
    return gap / good if good > 0 else math.inf
