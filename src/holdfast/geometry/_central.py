"""Where the majority of the rows is, and how far apart they usually are: from distances alone."""

import torch
from torch import Tensor


def most_central(distances: Tensor, weights: Tensor | None = None) -> int:
    """The row with the least sum of distances [n, n] to its nearer half (in weight): no minority can make itself central."""
    if weights is None:
        weights = torch.full_like(distances[0], 1.0 / len(distances))
    ordered, order = distances.sort(dim=1)
    sorted_weights = weights[order]
    below = sorted_weights.cumsum(1) - sorted_weights
    nearer_half = (sorted_weights * ordered).where(below <= 0.5 * weights.sum(), 0.0)
    return int(nearer_half.sum(1).argmin())


def half_weight_radius(distances: Tensor, weights: Tensor) -> float:
    """The smallest of the distances [n] within which more than half of the weight lies."""
    ordered, order = distances.sort()
    half = 0.5 * weights.sum() * (1 + 1e-12)  # exactly half is not more, whatever rounding says
    reached = weights[order].cumsum(0) > half
    return float(ordered[int(torch.nonzero(reached)[0, 0])])
