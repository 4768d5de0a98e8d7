"""The geometric median in Gram space, certified."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.geometry._central import half_weight_radius, normalized, weights_or_equal
from holdfast.geometry._certificate import LOST, Certificate
from holdfast.geometry._gram import Gram
from holdfast.geometry._solution import Outcome, Solution

EPSILON = 1e-15
"""The rounding of a difference of ones in float64."""

ROUNDING = 1e-13
"""Differences of objective values below this share of a usual distance are rounding."""

NEARLY = 1.001
"""A force of at most this many times the weight of a row may turn out to be no larger."""

TOO_SHORT = 1e-9
"""A step from a row shorter than this share of the way is lost in float64."""


def geometric_median(
    gram: Gram, *, row_weights: Tensor | None = None, tolerance: float = 1e-6, max_steps: int = 100
) -> Solution:
    r"""Weights w of the point :math:`y = \sum_i w_i x_i` with the least sum of distances.

    Minimizes :math:`f(y) = \sum_i \eta_i \|x_i - y\|`, where :math:`\eta_i` are the `row_weights`.
    The certified `gap` bounds :math:`f(y) - \min f` relative to the sum of the smallest distances
    that make up half of the weight, so that far rows do not make it look small. It holds for the
    vector that the rows' `combine` returns, with all rounding: of the inner products, of the
    arithmetic here, and of the sum (:meth:`Certificate.gap`). It assumes that the inner products
    are as accurate as `gram` states, that shares of weight are equal if they agree to 1e-13, and
    that float64 rows are equal if they agree to 1e-150 of a usual row. If the result is a single
    row of a mixture, the gap is that of this row before it is rounded to its dtype.

    1. If a row is optimal, it is the medoid, and optimality can be checked there (Vardi and Zhang
       2000, equation 2.5): the pull :math:`\|R\|` of the other rows is at most the medoid's weight.
    2. Otherwise leave the medoid by their step. From there on no iterate can meet a row, because f
       is below its value at every row.
    3. Take Newton steps, halved until they lower f by what the Weiszfeld step is known to, or else
       that one. The Hessian is :math:`\sum_i \eta_i (I - u_i u_i^T) / d_i`, with distances
       :math:`d_i` and unit vectors :math:`u_i` from y to row i, so an n x n system gives the step.
    4. Certify the weights after one more Weiszfeld step: they are nonnegative, and f is no larger.

    Costs O(n^3) per step and no pass over the rows; three to six steps are usual. No gap is above
    2, which holds for any point; 0 says that the result is a row, and that no point is better.
    """
    eta = weights_or_equal(row_weights, gram.n)
    certificate = Certificate.of(gram, eta)
    problem = _Problem(certificate)
    start = problem.start()
    found, steps, reason = _first_good(certificate, start.optima, tolerance), 0, Outcome.STALLED
    if found[1] > tolerance:
        found, steps, reason = problem.descend(start.beside, start.usual, tolerance, max_steps)
    if found[1] > tolerance:
        # Where the descent ends early, a row may be the better end.
        rows = _first_good(certificate, [*start.optima, start.row], tolerance)
        found = min(found, rows, key=lambda pair: pair[1])
    weights, gap = found
    if gap <= tolerance:
        reason = Outcome.EXACT if gap == 0.0 else Outcome.CERTIFIED
    none = torch.zeros(gram.n, dtype=torch.bool)
    return Solution(weights, reason, steps, gap, rejected=none)


def _first_good(
    certificate: Certificate, candidates: Sequence[Tensor], tolerance: float
) -> tuple[Tensor, float]:
    """The first of the weights within the tolerance, or else the first that are far the best."""
    best, least = torch.empty(0), math.inf
    for weights in candidates:
        gap = certificate.gap(weights)
        if gap <= tolerance:
            return weights, gap
        if gap < 0.1 * least:
            best, least = weights, gap
    return best, least


@dataclass(frozen=True, eq=False)
class _Start:
    """Where to begin, and what may already be the end."""

    row: Tensor  # weights of the medoid
    optima: list[Tensor]  # weights that may be optimal
    beside: Tensor  # weights of a point that is better than every row, if there is one
    usual: float  # the distance from the medoid within which more than half of the weight lies


class _Iterate:
    """The point with these weights, and its distances."""

    def __init__(self, problem: "_Problem", weights: Tensor) -> None:
        self.weights = weights
        self.image = problem.products @ weights
        self.square = weights @ self.image
        squared = problem.squares - 2 * self.image + self.square
        # Rounding may put the point on a row. The floor keeps that row's pull finite.
        self.distances = torch.maximum(squared, problem.floors).sqrt()
        # The objective relative to its value at the base point. Differences of distances are taken
        # as those of their squares, so that far rows do not swallow the digits of near ones.
        nearer = (self.square - 2 * self.image) / (self.distances + problem.lengths)
        self.value = float(problem.eta @ nearer)


@dataclass(frozen=True, eq=False)
class _Steps:
    """Weights after a step from an iterate, and how much it promises."""

    weiszfeld: Tensor
    newton: Tensor
    decrease: float  # of f by the Weiszfeld step, at least
    decrement: float  # twice the decrease by the Newton step, to second order


class _Problem:
    """The rows, seen from their base point."""

    def __init__(self, certificate: Certificate) -> None:
        self.certificate = certificate
        self.products, self.eta = certificate.products, certificate.eta
        self.squares = self.products.diagonal().clamp(min=0)
        self.lengths = self.squares.sqrt()
        self.floors = 1e-30 * self.squares + torch.finfo(torch.float64).tiny

    def start(self) -> _Start:
        """The medoid, and the Vardi-Zhang step from it."""
        distances, medoid, best = self._medoid()
        certificate, eta = self.certificate, self.eta
        usual = half_weight_radius(distances, eta)
        row = torch.zeros_like(eta)
        row[medoid] = 1.0
        here = distances.square() <= LOST * certificate.errors(row)
        own_weight = float(eta[here].sum())
        pulls = torch.where(here, 0.0, eta / distances)
        total = pulls.sum()
        force = self._norm_of(pulls - total * row)
        # The medoid is optimal if the force of the others does not exceed its own weight.
        optima = [row] if force <= NEARLY * own_weight or usual == 0.0 else []
        ties = (best & ~here) if optima and usual > 0.0 else best[:0]
        if bool(ties.any()):  # of many medians the middle one, as the Weiszfeld step writes it
            middle = normalized(torch.where(ties | here, eta, 0.0))
            if len(eta) > 2:
                middle = normalized(eta / _Iterate(self, middle).distances)
            optima.insert(0, middle)
        # If no such step is left, but the row is not certain, only the middle of all rows is.
        beside = eta
        if force - own_weight > TOO_SHORT * force:
            beside = pulls / total * (1 - own_weight / force) + row * (own_weight / force)
        return _Start(row, optima, beside, usual)

    def _medoid(self) -> tuple[Tensor, int, Tensor]:
        """[n] distances from the medoid, its position, and bool [n] rows that are as good."""
        squared = self.squares[:, None] + self.squares - 2 * self.products
        same = self.certificate.gram.same
        if same is not None:
            squared[same[:, None] == same] = 0.0
        distances = squared.clamp_(min=0).sqrt_()
        tiny = torch.finfo(torch.float64).tiny
        nearer = (self.squares[:, None] - 2 * self.products) / (distances + self.lengths + tiny)
        values = nearer @ self.eta
        medoid = int(values.argmin())
        usual = half_weight_radius(distances[medoid], self.eta)
        rounding = ROUNDING * (usual + self.lengths[medoid])
        return distances[medoid], medoid, values <= values[medoid] + rounding

    def _norm_of(self, coefficients: Tensor) -> float:
        """The norm of the sum of coefficients[i] * x_i."""
        return math.sqrt(max(0.0, float(coefficients @ (self.products @ coefficients))))

    def descend(
        self, weights: Tensor, usual: float, tolerance: float, max_steps: int
    ) -> tuple[tuple[Tensor, float], int, Outcome]:
        """Newton or Weiszfeld steps: the last weights with their gap, the steps, why they ended."""
        at, before, promised = _Iterate(self, weights), math.inf, math.inf
        reason = Outcome.OUT_OF_STEPS
        for step in range(1, max_steps + 1):
            steps = self._steps(at)
            # The result is the Weiszfeld step: it never raises f, and has no negative weights. Its
            # gap is worth computing once the next step promises no more than the tolerance.
            if steps.decrement <= tolerance * float(self.eta @ at.distances):
                gap = self.certificate.gap(steps.weiszfeld)
                if gap <= tolerance:
                    return (steps.weiszfeld, gap), step, Outcome.CERTIFIED
            # Near the optimum f is flat in floating point; then the promise must still shrink.
            rounding = EPSILON * usual
            if at.value >= before - rounding and steps.decrement >= 0.5 * promised:
                reason = Outcome.STALLED
                break
            before, promised = at.value, steps.decrement
            at = self._better(at, steps, ROUNDING * usual)
        return (steps.weiszfeld, self.certificate.gap(steps.weiszfeld)), step, reason

    def _better(self, at: _Iterate, steps: _Steps, rounding: float) -> _Iterate:
        """The longest of halved Newton steps that is no worse than the Weiszfeld step, or it."""
        # From a crowd of equal rows the full Newton step overshoots by far, while the Weiszfeld
        # step hardly moves.
        allowed = at.value - steps.decrease + rounding
        for n_halvings in range(7):
            trial = _Iterate(self, at.weights + 0.5**n_halvings * (steps.newton - at.weights))
            if trial.value <= allowed:
                return trial
        return _Iterate(self, steps.weiszfeld)

    def _steps(self, at: _Iterate) -> _Steps:
        """The Weiszfeld step and the Newton step."""
        pulls = self.eta / at.distances
        total = float(pulls.sum())
        weiszfeld = pulls / total
        # Inner products of the vectors x_i - y, and with r = sum_i eta_i u_i: minus the gradient.
        seen = self.products - at.image - (at.image - at.square)[:, None]
        toward = seen @ pulls
        decrease = 0.5 * float(pulls @ toward) / total
        # Woodbury: the Hessian is H = total * I - V V^T with columns V_i = roots_i (x_i - y), so
        # H^-1 r = (r + V z) / total with (total * I - V^T V) z = V^T r.
        roots = pulls.sqrt() / at.distances
        system = (seen * roots * roots[:, None]).neg_()
        system.diagonal().add_(total)
        factor, failed = torch.linalg.cholesky_ex(system)
        if bool(failed):  # the rows lie on a line through the point
            return _Steps(weiszfeld, weiszfeld, decrease, 0.0)
        right = roots * toward
        z = torch.cholesky_solve(right[:, None], factor)[:, 0]
        # y + r / total is the Weiszfeld step; V z / total comes on top.
        moves = roots * z / total
        newton = weiszfeld + moves - moves.sum() * at.weights
        # Rounding may make the promise negative, which is none.
        decrement = max(0.0, 2 * decrease + float(right @ z) / total)
        return _Steps(weiszfeld, newton, decrease, decrement)
