"""Bounds on the suboptimality of combinations of rows for the geometric median."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.geometry._central import nearer_half
from holdfast.geometry._gram import Gram

ARITHMETIC = 1e-15
"""What float64 arithmetic on inner products adds to their relative error."""

LOST = 4.0
"""A squared distance of less than this many times its error counts as lost."""

WORST_GAP = 2.0
"""No point has a larger relative gap (see `Certificate.gap`)."""

ROUNDING = 1e-13
"""Shares of weight that differ by less are equal."""


@dataclass(frozen=True, eq=False)
class Certificate:
    r"""Bounds on the suboptimality of any combination of the rows, including all rounding.

    The objective is :math:`f(y) = \sum_i \eta_i \|x_i - y\|`. The rows are known by inner products
    with errors :math:`|E_{ij}| \le \delta s_i s_j`, where :math:`s_i` is the norm of row i about
    the base point. So the squared norm of any :math:`\sum_j c_j x_j` with :math:`\sum_j c_j = 0`
    has an error of at most :math:`\delta (\sum_j |c_j| s_j)^2`. Rows that are mixtures of measured
    ones count by their coefficients in these: the error of a difference of two similar mixtures is
    small.
    """

    # [n, n] inner products, [n] row weights with sum 1, [n] bounds on the norms of all that a row
    # was formed from and the norm of the origin, both about the base point; see `Gram`.
    products: Tensor
    eta: Tensor
    sizes: Tensor
    origin: float
    gram: Gram

    @classmethod
    def of(cls, gram: Gram, eta: Tensor) -> "Certificate":
        """For the rows of `gram` with the row weights `eta` [n]."""
        measured = gram.measured_sizes
        sizes = measured if gram.mixture is None else gram.mixture.abs() @ measured
        n, origin = gram.n, float(measured[-1])
        return cls(gram.products[:n, :n], eta, sizes[:n], origin, gram)

    def errors(self, weights: Tensor) -> Tensor:
        """[n] bounds on the errors of squared distances from the point with these `weights`."""
        gram, loose = self.gram, self.sizes + weights @ self.sizes
        if gram.mixture is None:
            return (gram.precision + ARITHMETIC) * loose.square()
        mixture = gram.mixture[: gram.n]
        tight = (mixture - weights @ mixture).abs() @ gram.measured_sizes
        return gram.precision * tight.square() + ARITHMETIC * loose.square()

    def norm(self, coefficients: Tensor) -> float:
        """A bound on the norm of the sum of coefficients[i] * x_i; they have the sum zero."""
        gram, loose = self.gram, float(coefficients.abs() @ self.sizes)
        tight = loose
        if gram.mixture is not None:
            tight = float((coefficients @ gram.mixture[: gram.n]).abs() @ gram.measured_sizes)
        square = float(coefficients @ (self.products @ coefficients))
        error = gram.precision * tight * tight + ARITHMETIC * loose * loose
        return min(tight, math.sqrt(max(square, 0.0) + error))

    def gap(self, weights: Tensor) -> float:
        r"""An upper bound on :math:`(f(y) - \min f) / N(y)` at the vector y with these `weights`.

        y is the vector as :meth:`Rows.combine` returns it, rounded to its dtype; N(y) is the
        weighted sum of the smallest distances that make up half of the weight. Lost distances
        (those of rows that cannot be distinguished from y) are counted at their largest and
        smallest.

        1. f is convex, so :math:`f(y) - \min f` is at most the smallest norm of a subgradient times
           the distance to the minimizer (`distance_bound`). A row at y has all vectors of norm at
           most 1 as subgradients, so the weight of rows at y is taken off the norm of the others.
        2. Without rows at y: with the gradient g and the Hessian
           :math:`H = \sum_i \eta_i (I - u_i u_i^T) / d_i`, the vectors
           :math:`u_i - (I - u_i u_i^T) H^{-1} g / d_i` have weighted sum zero and norms
           :math:`p_i \le (1 + \|g\|^2 / (\mu d_i)^2)^{1/2}`, with the smallest eigenvalue
           :math:`\mu` of H. Hence :math:`f(y) \le \min f + \sum_i \eta_i (p_i - 1) d_i(y^*)`.
        3. The nearest half H of the weight gives :math:`f(z) \ge f(y) - 2 N(y)` for every z: moving
           by t takes at most t off the distances to the others, and adds at least
           :math:`t - 2 d_i` to those in H. So no gap exceeds 2.
        """
        point = _Point.at(self, weights)
        bound = point.excess * distance_bound(point.high, self.eta)
        if bound > 0.0 and point.own_weight == 0.0:
            bound = min(bound, self._second_order(point))
        total = bound + point.moved + self._of_rounding(point)
        if total == 0.0:
            return 0.0
        # The rounding of y also changes the scale.
        scale = float(nearer_half(point.low, self.eta)) - point.rounding
        relative = total / scale if scale > 0 else math.inf
        return min(relative, WORST_GAP) if relative >= 0 else WORST_GAP  # never NaN

    def _second_order(self, point: "_Point") -> float:
        """The bound that is quadratic in the gradient."""
        pulls, squared = point.pulls, point.squared
        total = float(pulls.sum())
        image = self.products @ point.weights
        seen = self.products - image - (image - point.weights @ image)[:, None]
        # The Hessian is total * I - V V^T, with columns V_i = (pulls_i)^(1/2) u_i. The largest
        # eigenvalue of V V^T is at most the Frobenius norm of V^T V.
        roots = (pulls / squared).sqrt()
        largest = float(torch.linalg.matrix_norm(seen * roots * roots[:, None]))
        error = point.errors / squared
        weighted = pulls * error
        # Errors of distances change the pulls and the unit vectors.
        doubt = 2 * float(weighted.sum()) + 3 * math.sqrt(total * float(weighted @ error))
        smallest = total - largest - doubt
        if not smallest > 0:
            return math.inf
        growth = (point.slope / smallest / point.low).square()
        excess = growth / (1 + (1 + growth).sqrt())
        return float(self.eta @ (excess * (point.high + distance_bound(point.high, self.eta))))

    def _of_rounding(self, point: "_Point") -> float:
        """How much the rounding of the vector may add to the objective."""
        e = point.rounding
        if e == 0.0:
            return 0.0
        # |x - y - e| <= |x - y| - <u, e> + |e|^2 / (2 |x - y|), and <= |x - y| - <u, e> + 2 |e|.
        bend = (e * e / (2 * point.low)).clamp(max=2 * e)
        return point.slope * e + float(self.eta @ bend)


@dataclass(frozen=True, eq=False)
class _Point:
    """A combination of rows, seen through inner products with errors."""

    weights: Tensor
    squared: Tensor  # [n] squared distances of the rows
    errors: Tensor  # [n] bounds on the errors of these
    low: Tensor  # [n] lower bounds on the distances
    high: Tensor  # [n] upper bounds
    pulls: Tensor  # [n] eta / distance; 0 for rows that cannot be told from the point
    own_weight: float  # the weight of these rows
    moved: float  # twice their weighted distances: moving them to the point changes the gap by it
    slope: float  # a bound on the norm of the gradient of the other rows
    rounding: float  # a bound on the rounding of the vector

    @property
    def excess(self) -> float:
        """The smallest norm of a subgradient."""
        # No force of the others exceeds half of the weight, whatever the rounding of the sum.
        holds = self.own_weight >= 0.5 - ROUNDING
        return 0.0 if holds else max(0.0, self.slope - self.own_weight)

    @classmethod
    def at(cls, known: Certificate, weights: Tensor) -> "_Point":
        eta, sizes = known.eta, known.sizes
        size = float(weights @ sizes)
        image = known.products @ weights
        squared = known.products.diagonal() - 2 * image + weights @ image
        errors = known.errors(weights)
        rounding = known.gram.rounding * (size + known.origin) + known.gram.underflow
        if torch.equal(weights, eta):  # the plain mean, which is summed in the rows' own dtype
            rounding *= len(eta) + 2
        support = torch.nonzero(weights)[:, 0]
        if len(support) == 1:
            same = known.gram.same
            # The point is a row: it has no rounding, and equal rows have no distance from it.
            here = support if same is None else same == same[support]
            squared[here], errors[here], rounding = 0.0, 0.0, 0.0
        lost = squared <= LOST * errors
        high = (squared.clamp(min=0) + errors).sqrt()
        pulls = torch.where(lost, 0.0, eta / squared.clamp(min=0).sqrt())
        # The gradient is sum_i coefficients_i x_i, up to the errors of the distances in the pulls.
        total = pulls.sum()
        coefficients = pulls - total * weights
        # The coefficients have a rounding of their own.
        norm = known.norm(coefficients) + ARITHMETIC * float(pulls @ sizes + total * size)
        away = torch.where(lost, 0.0, eta)
        # |d - d'| / d' <= 0.54 |d^2 - d'^2| / d'^2 for errors of at most a quarter.
        norm += 0.54 * float(away @ torch.where(lost, 0.0, errors / squared))
        if len(eta) == 2 and bool((weights == 0.5).all() & (eta[0] == eta[1])):
            norm = 0.0  # in the middle of two rows their pulls cancel, whatever their distance
        return cls(
            weights=weights,
            squared=squared,
            errors=errors,
            low=torch.where(lost, 0.0, (squared - errors).clamp(min=0).sqrt()),
            high=high,
            pulls=pulls,
            own_weight=float((eta - away).sum()),
            moved=2 * float(torch.where(lost, eta * high, 0.0).sum()),
            slope=min(norm, float(away.sum())),  # each row pulls with at most its weight
            rounding=rounding,
        )


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
