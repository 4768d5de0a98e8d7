"""The geometric median of many rows without their Gram matrix: sketch, then polish."""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.geometry._central import normalized, weights_or_equal
from holdfast.geometry._certificate import relative_gap
from holdfast.geometry._dense_rows import DenseRows
from holdfast.geometry._measure import CLOSE, FAST_PRECISION
from holdfast.geometry._sketch import Sketch, columns_per_sampled
from holdfast.geometry._solution import Outcome, Solution

ROWS_PER_SWEEP = 16
"""A Gram matrix of n rows costs about 1 + n / 16 sweeps (`python -m benchmarks crossover`)."""

SKETCHED_STEPS = 3
"""Newton steps in the sketch: more would polish the sampling error."""

PATIENCE = 3
"""Sweeps after which some gap must be certified."""

FLOAT32_ROUNDING = 1e-5
"""Bound on errors of squared norms and of products with one vector, in multiples of the norms.

Measured: 1e-7 for normal rows, 3e-6 for constant ones, whose terms all round the same way. The gap
is of second order in it.
"""

FLOAT64_ROUNDING = 1e-13
"""The same for float64 rows."""

LEAST_CURVATURE = 1e-3
"""Smaller differences of trace and norm of the sampled products are rounding."""


def streaming_geometric_median(
    rows: DenseRows, *, row_weights: Tensor | None = None, tolerance: float = 1e-6
) -> tuple[Solution, Tensor] | None:
    r"""The certified geometric median and its vector [d] by a sketch and sweeps over the rows.

    A :class:`Sketch` gives weights w near those of the median. A sweep at w gives the point
    :math:`y = \sum_i w_i x_i` and its inner products with all rows, hence all distances
    :math:`d_i` exactly. With these a Newton step, whose matrix alone is estimated by the sketch,
    improves w: its error is a product of two small ones, so that the second or third sweep
    certifies.

    *Certificate.* Let :math:`a_i = \eta_i / d_i`, :math:`T = \sum_i a_i`, :math:`u_i` the unit
    vectors from y to the rows, and :math:`\delta = \sum_i |a_i / T - w_i| d_i`. Because
    :math:`\sum_i w_i (x_i - y) = 0`, the slope :math:`\|\sum_i \eta_i u_i\|` is at most
    :math:`T \delta`. For any t, with :math:`t_i` its part perpendicular to :math:`u_i`,
    :math:`\|x_i - y - t\| - d_i \ge -\langle u_i, t \rangle + \|t_i\|^2 / 2 (d_i + \|t\|)`, so

    .. math:: f(y + t) - f(y) \ge -T \delta \|t\| + T c \|t\|^2 / 2 (1 + \|t\| / d_{\min}),

    where :math:`c = 1 - \lambda` and :math:`\lambda` is the largest eigenvalue of
    :math:`A = \sum_i (a_i / T) u_i u_i^T`. At :math:`\|t\| = \rho = 4 \delta / c`, if
    :math:`\rho \le d_{\min}`, the right side is at least zero. By convexity the minimizer is then
    not farther than :math:`\rho`, and maximizing over :math:`\|t\| \le \rho` bounds the gap by
    :math:`T \delta^2 (1 + \rho / d_{\min}) / 2 c`.

    *Curvature.* A has trace 1, so c is the sum of its eigenvalues but the largest. Restricted to
    the sampled columns, A has smaller eigenvalues one by one (Cauchy's interlacing), and their sum
    but the largest is at least trace minus Frobenius norm, which the sampled products give. So c is
    at least about the sampled share of columns, whatever the other columns hold.

    Returns None, so that the Gram matrix is used, if the rows look dangerous (as in
    :func:`measure`) or if the remaining sweeps, at the rate of the last ones, would cost more than
    the Gram matrix.
    """
    if tolerance < FAST_PRECISION:
        return None  # sweeps claim no smaller gap
    eta = weights_or_equal(row_weights, rows.n)
    sketch = Sketch.of(rows, columns_per_sampled(rows.n, rows.d))
    if sketch is None:
        return None
    rounding = FLOAT64_ROUNDING if rows.dtype is torch.float64 else FLOAT32_ROUNDING
    polish = _Polish(sketch=sketch, eta=eta, rounding=rounding)
    weights = polish.start()
    out = torch.empty(rows.d, dtype=rows.dtype)
    # More sweeps than this would cost more than the Gram matrix.
    n_affordable = 1 + rows.n // ROWS_PER_SWEEP
    gap = math.inf
    for step in range(1, n_affordable + 1):
        products = rows.sweep(weights, out)
        squared = sketch.squares - 2 * products + weights @ products
        # Where a row is close to the point, the difference of squares has lost its digits. The
        # Gram matrix can measure such rows again in float64; a sweep cannot.
        if not bool((squared >= CLOSE * sketch.squares).all()):
            return None
        distances = squared.sqrt()
        previous_gap, gap = gap, relative_gap(polish.gap(weights, distances), distances, eta)
        if gap <= tolerance:
            return Solution(weights, Outcome.CERTIFIED, step, max(gap, FAST_PRECISION)), out
        if step + _sweeps_left(previous_gap, gap, tolerance, step) > n_affordable:
            return None
        weights = polish.improved(weights, distances)
    return None


def _sweeps_left(previous_gap: float, gap: float, tolerance: float, step: int) -> float:
    """How many more sweeps reach the tolerance at the present rate of convergence."""
    if math.isinf(previous_gap):  # the rate is not known yet
        return 1 if math.isfinite(gap) or step < PATIENCE else math.inf
    rate = math.log(previous_gap / gap) if gap < previous_gap else 0.0
    return math.log(gap / tolerance) / rate if rate > 0 else math.inf


def _centered(products: Tensor, weights: Tensor) -> Tensor:
    """[n, n] inner products about the point with these weights."""
    image = products @ weights
    return products - image[:, None] - image + weights @ image


@final
@dataclass(frozen=True, eq=False)
class _Polish:
    """Steps toward the median and a bound on the gap, from exact distances and the sketch."""

    sketch: Sketch
    eta: Tensor
    rounding: float

    def start(self) -> Tensor:
        """Weights of the sketched median."""
        squares, products = self.sketch.squares, self.sketch.products
        weights = normalized(self.eta / squares.sqrt())  # Weiszfeld's step from the origin
        for _ in range(SKETCHED_STEPS):
            image = products @ weights
            squared = squares - 2 * image + weights @ image
            weights = self.improved(weights, squared.clamp(min=CLOSE * squares).sqrt())
        return weights

    def improved(self, weights: Tensor, distances: Tensor) -> Tensor:
        r"""Weights after a Newton step for :math:`w_i d_i(w) / \eta_i` to be equal over i.

        With the inner products G about the point, a change v of the weights changes :math:`d_i` by
        :math:`-(G v)_i / d_i` to first order.
        """
        products = _centered(self.sketch.products, weights)
        products.diagonal().copy_(distances.square())  # these are known exactly
        system = torch.diag(distances) - (weights / distances)[:, None] * products
        # One factorization serves both right sides: the equations are linear in the unknown level
        # that all w_i d_i / eta_i are to have.
        both = torch.stack([self.eta, weights * distances], dim=1)
        solved, failed = torch.linalg.solve_ex(system, both)
        if bool(failed):
            return normalized(self.eta / distances)
        # The level for which the changes have the sum zero, so that the weights keep theirs.
        level = solved[:, 1].sum() / solved[:, 0].sum()
        change = level * solved[:, 0] - solved[:, 1]
        # The result is a Weiszfeld step from the new point: its weights are not negative.
        image = products @ change
        squared = distances.square() - 2 * image + change @ image
        if not bool((squared > 0.1 * distances.square()).all()):  # too long a step, or not finite
            return normalized(self.eta / distances)
        return normalized(self.eta / squared.sqrt())

    def gap(self, weights: Tensor, distances: Tensor) -> float:
        """The certified gap at the point with these weights and these exact distances."""
        attraction = self.eta / distances
        total = float(attraction.sum())
        pulls = attraction / total
        # Relative errors of the distances enter the pulls, and their sum.
        errors = self.rounding * self.sketch.squares / distances.square()
        delta = float((((pulls - weights).abs() + 2 * pulls * errors) * distances).sum())
        # The sampled columns alone bound the curvature from below (see `streaming_median`), so an
        # attacker who hides entries in the other columns can only make the bound too careful.
        roots = pulls.sqrt() / distances
        seen = _centered(self.sketch.sampled, weights) * roots[:, None] * roots
        trace = float(seen.trace())
        curvature = self.sketch.share * (trace - float(seen.norm()))
        if not curvature > LEAST_CURVATURE * self.sketch.share:
            return math.inf
        # The expansion of the distances holds within the nearest row only.
        nearest, radius = float(distances.min()), 4 * delta / curvature
        if radius > nearest:
            return math.inf
        return total * delta * delta * (1 + radius / nearest) / (2 * curvature)
