"""The geometric median of many rows without their Gram matrix."""

import math

import torch
from torch import Tensor

from holdfast.geometry._geometric_median import distance_bound, relative_gap
from holdfast.geometry._measure import CLOSE, FAST_PRECISION, norms_in_safe_range
from holdfast.geometry._rows import StreamableRows
from holdfast.geometry._solution import Outcome, Solution

# `python -m benchmarks crossover`: the costs meet at 50 to 70 rows.
FEW_ROWS = 64
"""For fewer rows the Gram matrix is cheaper than the sweeps."""

ROWS_PER_SWEEP = 15
"""A Gram matrix of n rows costs about n / 15 sweeps on a CPU (the same benchmark)."""


def pays_to_stream(rows: StreamableRows) -> bool:
    """Whether `streaming_geometric_median` is likely to be faster than the Gram matrix."""
    # On an accelerator a Gram matrix is cheap, and each sweep would wait for the host.
    return rows.n >= FEW_ROWS and rows.device.type == "cpu" and rows.has_working_dtype


def streaming_geometric_median(
    rows: StreamableRows, *, row_weights: Tensor | None = None, tolerance: float = 1e-6
) -> tuple[Solution, Tensor] | None:
    r"""The certified geometric median and its vector [d] by sweeps over the rows.

    A sweep at weights w gives :math:`y = \sum_i w_i x_i` and its inner products with all rows,
    hence all distances :math:`d_i`. Weiszfeld's step is :math:`w_i \propto \eta_i / d_i`. Two
    consecutive sweeps certify, by the smaller of two bounds. The vectors
    :math:`(x_i - y^+) / d_i(y)` have weighted sum zero, so divided by their largest norm
    :math:`s = \max_i d_i(y^+) / d_i(y)` they are feasible for the dual problem, and
    :math:`\min f \ge \sum_i \eta_i d_i(y^+)^2 / (d_i(y) s)`. By the same sum,
    :math:`\|\nabla f(y^+)\| \le \sum_i \eta_i |1 - d_i(y^+) / d_i(y)|`, and the nearest majority of
    rows bounds the distance to the minimizer.

    Returns None, so that the Gram matrix is used, if the rows look dangerous (as in
    :func:`measure`) or if the remaining sweeps, at the rate of the last ones, would cost more than
    the Gram matrix. Rows in high dimension are nearly orthogonal about their median, and three or
    four sweeps suffice.
    """
    if tolerance < FAST_PRECISION:
        return None
    eta = row_weights
    if eta is None:
        eta = torch.full((rows.n,), 1.0 / rows.n, dtype=torch.float64)
    squares = rows.squared_norms()
    if not norms_in_safe_range(squares, rows.dtype):
        return None
    out = torch.empty(rows.d, dtype=rows.dtype)
    weights = _normalized(eta / squares.sqrt())  # Weiszfeld's step from the origin
    n_affordable = rows.n // ROWS_PER_SWEEP
    before = _distances(rows, weights, squares, out)
    gap = math.inf
    for step in range(1, n_affordable + 1):
        if before is None:
            return None
        weights = _normalized(eta / before)
        after = _distances(rows, weights, squares, out)
        if after is None:
            return None
        previous_gap, gap = gap, relative_gap(_gap(eta, before, after), after, eta)
        if gap <= tolerance:
            return Solution(weights, Outcome.CERTIFIED, step, max(gap, FAST_PRECISION)), out
        if step + _sweeps_left(previous_gap, gap, tolerance) > n_affordable:
            return None
        before = after
    return None


def _normalized(weights: Tensor) -> Tensor:
    return weights / weights.sum()


def _distances(
    rows: StreamableRows, weights: Tensor, squares: Tensor, out: Tensor
) -> Tensor | None:
    """[n] distances from the point with these weights, written to `out`; None if inaccurate."""
    products = rows.sweep(weights, out)
    squared = squares - 2 * products + weights @ products
    return squared.sqrt() if bool((squared >= CLOSE * squares).all()) else None


def _gap(eta: Tensor, before: Tensor, after: Tensor) -> float:
    """The certified gap: the smaller of the dual bound and the bound by the slope."""
    ratio = after / before
    dual = float((eta * after * (1 - ratio / ratio.max())).sum())
    slope = float((eta * (1 - ratio).abs()).sum())
    return min(dual, slope * distance_bound(after, eta))


def _sweeps_left(previous_gap: float, gap: float, tolerance: float) -> float:
    """How many more sweeps reach the tolerance at the present rate of convergence."""
    if math.isinf(previous_gap):
        return 1
    rate = math.log(previous_gap / gap) if gap < previous_gap else 0.0
    return math.log(gap / tolerance) / rate if rate > 0 else math.inf
