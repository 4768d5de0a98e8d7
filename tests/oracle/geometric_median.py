"""Slow geometric medians: Weiszfeld steps in float64, and Newton steps with 110 digits."""

from collections.abc import Sequence
from typing import Any

import mpmath
import torch
from torch import Tensor


def objective(rows: Tensor, point: Tensor, weights: Tensor | None = None) -> float:
    """The weighted sum of distances."""
    eta = torch.ones(len(rows), dtype=torch.float64) if weights is None else weights.double()
    return float((eta * (rows.double() - point.double()).norm(dim=1)).sum())


def geometric_median(rows: Tensor, weights: Tensor | None = None, n_steps: int = 3_000) -> Tensor:
    """[d] in float64."""
    points = rows.double()
    eta = torch.ones(len(points), dtype=torch.float64) if weights is None else weights.double()
    start = int(torch.stack([(eta * (points - row).norm(dim=1)).sum() for row in points]).argmin())
    y = points[start].clone()
    for _ in range(n_steps):
        distances = (points - y).norm(dim=1)
        here = distances < 1e-14 * distances.max()
        pulls = torch.where(here, 0.0, eta / distances)
        if bool(here.all()) or float(distances.max()) == 0:
            return y
        target = (pulls[:, None] * points).sum(0) / pulls.sum()
        residual = ((points - y) * pulls[:, None]).sum(0).norm()
        own = eta[here].sum()
        if bool(own > 0) and bool(residual <= own):
            return y
        keep = float(own / residual) if bool(own > 0) else 0.0
        step = (1 - keep) * (target - y)
        y = y + step
        if float(step.norm()) <= 1e-15 * float(distances.max()):
            return y
    return y


def is_optimal(rows: Tensor, point: Tensor, tolerance: float) -> bool:
    """The optimality condition: unit vectors to the rows cancel, up to the weight of rows here."""
    differences = rows.double() - point.double()
    distances = differences.norm(dim=1)
    here = distances < tolerance * distances.max()
    pull = (differences[~here] / distances[~here, None]).sum(0).norm()
    return bool(pull <= here.sum() + tolerance * len(rows))


class PreciseMedian:
    """The geometric median with 110 digits: Newton with the Vardi-Zhang rule, in mpmath.

    The objective is `sum_i eta_i |x_i - y|`, with `eta` as given or 1 / n.
    """

    def __init__(self, rows: Tensor, eta: Tensor | None = None) -> None:
        mpmath.mp.dps = 110
        self.rows = [[mpmath.mpf(x) for x in row] for row in rows.double().tolist()]
        n = len(self.rows)
        equal = [mpmath.mpf(1) / n] * n
        self.eta = equal if eta is None else [mpmath.mpf(x) for x in eta.tolist()]

    def objective(self, point: Sequence[Any]) -> Any:
        """The weighted sum of distances from the point."""
        return mpmath.fdot(self.eta, self.distances(point))

    def distances(self, point: Sequence[Any]) -> list[Any]:
        differences = ([x - y for x, y in zip(row, point, strict=True)] for row in self.rows)
        return [mpmath.sqrt(mpmath.fdot(one, one)) for one in differences]

    def gap(self, point: Sequence[Any], minimum: Any) -> float:
        """The objective above its minimum, in sums of the smaller half of the distances."""
        distances = self.distances(point)
        excess = mpmath.fdot(self.eta, distances) - minimum
        scale, reached = mpmath.mpf(0), mpmath.mpf(0)
        half = sum(self.eta) / 2 * (1 - mpmath.mpf(10) ** -12)
        for distance, weight in sorted(zip(distances, self.eta, strict=True)):
            if reached < half:
                scale += weight * distance
            reached += weight
        # The minimum is proved to 25 digits of the distances, and stored with 45 of its own.
        if excess <= mpmath.mpf(10) ** -24 * scale + mpmath.mpf(10) ** -44 * abs(minimum):
            return 0.0
        return float(excess / scale) if scale > 0 else float("inf")

    def minimum(self) -> Any:
        """The least value of the objective, proved to 25 digits by the norm of the gradient."""
        values = [self.objective(row) for row in self.rows]
        medoid = self.rows[values.index(min(values))]
        weight_at: dict[tuple[Any, ...], Any] = {}
        for row, weight in zip(self.rows, self.eta, strict=True):
            place = tuple(x - c for x, c in zip(row, medoid, strict=True))
            weight_at[place] = weight_at.get(place, 0) + weight
        # The medoid comes last, as the zero vector.
        own = weight_at.pop((mpmath.mpf(0),) * len(medoid))
        places, eta = list(weight_at), list(weight_at.values())
        if not places:
            return mpmath.mpf(0)
        products = mpmath.matrix(len(places) + 1)
        for i, left in enumerate(places):
            for j, right in enumerate(places):
                products[i, j] = mpmath.fdot(left, right)
        pulls = [weight / mpmath.sqrt(products[i, i]) for i, weight in enumerate(eta)]
        force = mpmath.sqrt(_form(products, [*pulls, 0]))
        if force <= own * (1 + mpmath.mpf(10) ** -50):
            return min(values)
        step = (1 - own / force) / sum(pulls)
        weights = [step * pull for pull in pulls]
        return _descend(products, [*eta, own], [*weights, 1 - sum(weights)])


def _image(products: Any, weights: Sequence[Any]) -> list[Any]:
    return list(products * mpmath.matrix(weights))


def _form(products: Any, weights: Sequence[Any]) -> Any:
    return max(mpmath.fdot(weights, _image(products, weights)), mpmath.mpf(0))


def _distances(products: Any, weights: Sequence[Any]) -> list[Any]:
    image = _image(products, weights)
    square = mpmath.fdot(weights, image)
    squared = [products[i, i] - 2 * x + square for i, x in enumerate(image)]
    return [mpmath.sqrt(max(x, mpmath.mpf(0))) for x in squared]


def _descend(products: Any, eta: Sequence[Any], weights: list[Any]) -> Any:
    """Damped Newton steps, until the gradient proves the value to 25 digits of every distance."""
    for _ in range(500):
        distances = _distances(products, weights)
        value = mpmath.fdot(eta, distances)
        pulls = [e / d for e, d in zip(eta, distances, strict=True)]
        total = sum(pulls)
        slope = mpmath.sqrt(
            _form(products, [p - total * w for p, w in zip(pulls, weights, strict=True)])
        )
        # The minimizer is within f(y) + min f of y.
        if slope * 2 * value < mpmath.mpf(10) ** -25 * min(distances):
            return value
        weiszfeld = [pull / total for pull in pulls]
        newton = _newton(products, weights, pulls, distances)
        allowed = mpmath.fdot(eta, _distances(products, weiszfeld))
        for halvings in range(12):
            share = mpmath.mpf(0.5) ** halvings
            trial = [w + share * (t - w) for w, t in zip(weights, newton, strict=True)]
            if mpmath.fdot(eta, _distances(products, trial)) <= allowed:
                break
        else:
            trial = weiszfeld
        weights = trial
    raise AssertionError("the precise median did not converge")


def _newton(
    products: Any, weights: Sequence[Any], pulls: Sequence[Any], distances: Sequence[Any]
) -> list[Any]:
    """Weights after a Newton step, by the system of equations for its coefficients.

    With h = sum_i b_i (x_i - y) and the pulls p_i = eta_i / d_i, H h = r says that
    P b_i - p_i / d_i^2 sum_j <x_i - y, x_j - y> b_j = p_i, with P = sum_i p_i.
    """
    n, image = len(weights), _image(products, weights)
    square, total = mpmath.fdot(weights, image), sum(pulls)
    system = mpmath.matrix(n)
    for i in range(n):
        for j in range(n):
            seen = products[i, j] - image[i] - image[j] + square
            system[i, j] = (total if i == j else 0) - pulls[i] / distances[i] ** 2 * seen
    moves = list(mpmath.lu_solve(system, mpmath.matrix(pulls)))
    rest = 1 - sum(moves)
    return [w * rest + m for w, m in zip(weights, moves, strict=True)]
