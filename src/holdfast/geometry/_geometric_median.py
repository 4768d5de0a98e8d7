"""The geometric median in Gram space, certified."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from holdfast.geometry._central import FAR, half_weight_radius, most_central, nearer_half
from holdfast.geometry._gram import Gram, distances_from, squared_distances
from holdfast.geometry._solution import Outcome, Solution

EPSILON = 1e-15
"""What float64 leaves of a difference of ones."""

ROUNDING = 1e-13
"""Relative differences of objective values below this are rounding."""

TOO_SHORT = 1e-9
"""A step away from a row that is shorter than this share of the way cannot be told from no step in float64."""


def geometric_median(
    gram: Gram, *, row_weights: Tensor | None = None, tolerance: float = 1e-6, max_steps: int = 100
) -> Solution:
    r"""Weights w of the point :math:`y = \sum_i w_i x_i` that minimises :math:`f(y) = \sum_i \eta_i \|x_i - y\|`.

    `row_weights` are the :math:`\eta_i`. The certified `gap` bounds :math:`f(y) - \min f` relative to the sum of the
    smallest distances that make up half of the weight, so that rows far away do not flatter it.

    1. If a row is optimal, it is the medoid, and optimality can be read off there (Vardi and Zhang 2000, equation 2.5):
       the pull :math:`\|R\|` of the other rows is no more than the medoid's own weight.
    2. Else leave the medoid by their step. From there on no iterate can meet a row, because f is below its value at every row.
    3. Take Newton steps, halved until they lower f as much as the Weiszfeld step, or that one. The Hessian is
       :math:`\sum_i \eta_i (I - u_i u_i^T) / d_i`, with distances :math:`d_i` and unit vectors :math:`u_i` from y to row i, so
       an n x n system gives the step h.
    4. Certify, by the smaller of two bounds. The vectors :math:`u_i - (I - u_i u_i^T) h / d_i` have weighted sum zero; divided by
       their largest norm s they are feasible for the dual problem, with value f(y) / s, so the gap is at most
       :math:`f(y) (1 - 1 / s)`, of second order in h. And f is convex, so the gap is at most :math:`\|\nabla f(y)\|` times the distance
       to the minimiser, which the nearer majority of rows bounds however far the others are.

    Costs O(n^3) a step and no pass over the rows; three to six steps are usual.
    """
    eta = (
        torch.full((gram.n,), 1.0 / gram.n, dtype=torch.float64)
        if row_weights is None
        else row_weights
    )
    centre = most_central(gram.distances, eta)
    usual = half_weight_radius(gram.distances[centre], eta)
    if usual == 0.0:  # more than half of the weight stands on one point
        weights = eta * (gram.distances[centre] == 0)
        none = torch.zeros(gram.n, dtype=torch.bool)
        return Solution(weights / weights.sum(), Outcome.EXACT, 0, 0.0, rejected=none)
    products, pull = gram.pulled(centre, FAR * usual)
    problem = _Problem(products=products, eta=eta, pull=pull, centre=centre)
    found = problem.leave_medoid(tolerance)
    solution = (
        found if isinstance(found, Solution) else problem.descend(found, tolerance, max_steps)
    )
    return _as_honest_as(gram, problem.in_rows(solution), tolerance)


def _as_honest_as(gram: Gram, solution: Solution, tolerance: float) -> Solution:
    """No solution is known better than the inner products it came from."""
    if solution.gap is None or solution.gap >= gram.precision or solution.outcome is Outcome.EXACT:
        return solution
    is_enough = gram.precision <= tolerance
    return replace(
        solution, gap=gram.precision, outcome=solution.outcome if is_enough else Outcome.STALLED
    )


@dataclass(frozen=True, eq=False)
class _Problem:
    """Pulled rows, seen from a central one.

    products: [n, n] inner products of the pulled rows about row `centre`; pull: [n] the factors; eta: [n] row weights.
    """

    products: Tensor
    eta: Tensor
    pull: Tensor
    centre: int

    def in_rows(self, solution: Solution) -> Solution:
        """The same point as a combination of the rows themselves: what a pulled row lacks stands on the centre row."""
        weights = solution.weights * self.pull
        weights[self.centre] += 1.0 - weights.sum()
        return replace(
            solution, weights=weights, rejected=torch.zeros(len(weights), dtype=torch.bool)
        )

    def distances_from(self, weights: Tensor) -> Tensor:
        """[n] distances of the rows from the point with these weights."""
        # The floor keeps a point that rounding has put on a row from pulling with infinite strength.
        return distances_from(
            self.products, weights, least=1e-24 * float(self.products.diagonal().max())
        )

    def leave_medoid(self, tolerance: float) -> Solution | Tensor:
        """The medoid if it is optimal (several of equal value: their mean), else the weights after the Vardi-Zhang step from it."""
        distances = squared_distances(self.products).sqrt()
        values = distances @ self.eta
        best = values <= values.min() * (1 + ROUNDING)
        medoid = int(torch.nonzero(best)[0, 0])
        here = distances[medoid] == 0
        own_weight = float(self.eta[here].sum())
        attraction = torch.where(here, 0.0, self.eta / distances[medoid])
        force = self._norm_of(attraction, medoid)
        excess = force - own_weight if force - own_weight > 10 * EPSILON * force else 0.0
        relative = relative_gap(
            excess * distance_bound(distances[medoid], self.eta), distances[medoid], self.eta
        )
        if relative <= tolerance or excess <= TOO_SHORT * force:
            weights = best * self.eta
            outcome = Outcome.EXACT if relative <= ROUNDING else Outcome.CERTIFIED
            return Solution(
                weights / weights.sum(),
                outcome if relative <= tolerance else Outcome.STALLED,
                0,
                relative,
            )
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
            # The Weiszfeld step never raises f, and its weights are never negative: it is what we return.
            if relative <= tolerance:
                return Solution(weiszfeld, Outcome.CERTIFIED, step, relative)
            # Near the optimum f no longer tells points apart; then the gap must, or we are done.
            before, value = value, float(self.eta @ distances)
            if value >= before * (1 - EPSILON) and relative > 0.5 * previous:
                return Solution(weiszfeld, Outcome.STALLED, step, relative)
            weights = self._better(weights, weiszfeld, newton, ROUNDING * value)
        return Solution(weiszfeld, Outcome.OUT_OF_STEPS, max_steps, relative)

    def _better(
        self, weights: Tensor, weiszfeld: Tensor, newton: Tensor, rounding: float
    ) -> Tensor:
        """The longest of halved Newton steps that is no worse than the Weiszfeld step, or else that one.

        From a crowd of equal rows the full Newton step overshoots by far, while Weiszfeld's hardly moves.
        """
        allowed = float(self.eta @ self.distances_from(weiszfeld)) + rounding
        for n_halvings in range(7):
            trial = weights + 0.5**n_halvings * (newton - weights)
            if float(self.eta @ self.distances_from(trial)) <= allowed:
                return trial
        return weiszfeld

    def _steps(self, weights: Tensor, distances: Tensor) -> tuple[Tensor, Tensor, float]:
        """Weights after a Weiszfeld step, weights after a Newton step, and the certified gap of the point between them."""
        image = self.products @ weights
        # Inner products of the unit vectors u_i from the point to the rows.
        cosines = (
            (self.products - image[:, None] - image[None, :] + weights @ image)
            / distances[:, None]
            / distances
        )
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
        across = (squared_length - toward.square()).clamp(min=0) + EPSILON * squared_length.abs()
        growth = float((across / distances.square()).max())
        root = math.sqrt(1 + growth)
        slope = math.sqrt(
            max(float(self.eta @ residual), EPSILON)
        )  # a square below rounding counts as rounding
        gap = min(
            float(self.eta @ distances) * growth / (root * (1 + root)),
            slope * distance_bound(distances, self.eta),
        )
        moves = along / distances
        newton = weights * (1 - moves.sum()) + moves
        return weiszfeld, newton, gap


def distance_bound(distances: Tensor, eta: Tensor) -> float:
    r"""How far the geometric median can be from a point at these distances [n] from the rows.

    If a share :math:`\alpha > 1/2` of the weight lies within :math:`\rho`, the rows inside gain at most :math:`2\rho - t` each when the
    point moves by t, and those outside lose at most t: so :math:`t \le 2 \alpha \rho / (2 \alpha - 1)`.
    """
    ordered, order = distances.sort()
    shares = eta[order].cumsum(0) / eta.sum()
    bounds = 2 * shares * ordered / (2 * shares - 1)
    return float(bounds[shares > 0.5 + ROUNDING].min())


def relative_gap(gap: float, distances: Tensor, eta: Tensor) -> float:
    """The gap against the weighted sum of the smallest distances that make up half of the weight."""
    if gap == 0.0:
        return 0.0
    good = float(nearer_half(distances, eta))
    return gap / good if good > 0 else math.inf
