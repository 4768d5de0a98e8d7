"""Where the majority of the rows is, and how far apart they usually are: from distances alone."""

import torch
from torch import Tensor

FAR = 1e5
"""Rows farther away than this many usual distances are as good as at infinity; a median moves by less than 1 / FAR of one."""

_ROUNDING = 1e-12  # exactly half of the weight is half of it, whatever the sum of floating point numbers says


def nearer_half(distances: Tensor, weights: Tensor) -> Tensor:
    """The weighted sum of the smallest distances that make up half of the weight, over the last dimension of `distances`."""
    ordered, order = distances.sort(dim=-1)
    sorted_weights = weights[order]
    below = sorted_weights.cumsum(-1) - sorted_weights
    return (
        (sorted_weights * ordered).where(below < 0.5 * weights.sum() * (1 - _ROUNDING), 0.0).sum(-1)
    )


def least(values: Tensor, ties: Tensor) -> int:
    """The position of the smallest of the values [n]; of those equal to rounding, the one with the smallest of `ties` [n].

    A second measure decides between equals, so that the order of the rows does not.
    """
    tied = values <= values.min() * (1 + _ROUNDING)
    return int(torch.where(tied, ties, torch.inf).argmin())


def most_central(distances: Tensor, weights: Tensor | None = None) -> int:
    """The row with the least sum of distances [n, n] to its nearer majority (in weight): no minority can make itself central."""
    if weights is None:
        weights = torch.full_like(distances[0], 1.0 / len(distances))
    ordered, order = distances.sort(dim=1)
    sorted_weights = weights[order]
    below = sorted_weights.cumsum(1) - sorted_weights
    majority = below <= 0.5 * weights.sum() * (1 + _ROUNDING)
    return int((sorted_weights * ordered).where(majority, 0.0).sum(1).argmin())


def half_weight_radius(distances: Tensor, weights: Tensor) -> float:
    """The smallest of the distances [n] within which more than half of the weight lies."""
    ordered, order = distances.sort()
    reached = weights[order].cumsum(0) > 0.5 * weights.sum() * (1 + _ROUNDING)
    return float(ordered[int(torch.nonzero(reached)[0, 0])])
