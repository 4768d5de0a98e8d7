"""A slow geometric median: many Weiszfeld steps with the Vardi-Zhang rule, in float64."""

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
