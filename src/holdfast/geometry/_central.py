"""The center and the spread of the majority of rows, from their Gram matrix."""

import torch
from torch import Tensor

from holdfast.geometry._gram import Gram

# Clipping rows to this distance moves a median by less than 1 / FAR of a usual distance.
FAR = 1e5
"""Rows farther than this many usual distances count as infinitely far."""

_ROUNDING = 1e-12
"""Exactly half of the weight counts as half, whatever the rounding of the sum."""


def nearer_half(distances: Tensor, weights: Tensor) -> Tensor:
    """The weighted sum, over the last dimension, of the nearest half (in weight) of distances."""
    ordered, order = distances.sort(dim=-1)
    sorted_weights = weights[order]
    below = sorted_weights.cumsum(-1) - sorted_weights
    is_near = below < 0.5 * weights.sum() * (1 - _ROUNDING)
    return (sorted_weights * ordered).where(is_near, 0.0).sum(-1)


def least(values: Tensor, ties: Tensor) -> int:
    """The position of the smallest of the values [n]; among equals, of the smallest `ties` [n]."""
    # The second measure makes the choice independent of the order of rows.
    tied = values <= values.min() * (1 + _ROUNDING)
    return int(torch.where(tied, ties, torch.inf).argmin())


def most_central(distances: Tensor, weights: Tensor | None = None) -> int:
    """The row with the least sum of distances [n, n] to its nearest majority (by weight)."""
    # Only the nearest majority counts, so that no minority can make one of its rows central.
    if weights is None:
        weights = torch.full_like(distances[0], 1.0 / len(distances))
    ordered, order = distances.sort(dim=1)
    sorted_weights = weights[order]
    below = sorted_weights.cumsum(1) - sorted_weights
    majority = below <= 0.5 * weights.sum() * (1 + _ROUNDING)
    return int((sorted_weights * ordered).where(majority, 0.0).sum(1).argmin())


def half_weight_radius(distances: Tensor, weights: Tensor) -> float:
    """The smallest of the distances [n] within which more than half of the weight lies."""
    return float(half_weight_radii(distances[None], weights)[0])


def half_weight_radii(distances: Tensor, weights: Tensor) -> Tensor:
    """[n] for every row of the distances [n, n], its :func:`half_weight_radius`."""
    ordered, order = distances.sort(dim=1)
    reached = weights[order].cumsum(1) > 0.5 * weights.sum() * (1 + _ROUNDING)
    return ordered.gather(1, reached.to(torch.uint8).argmax(1, keepdim=True))[:, 0]


def principal_scores(gram: Gram, weights: Tensor) -> tuple[float, Tensor]:
    r"""The largest variance of the weighted rows, and each row's squared deviation along it.

    With :math:`\mu = \sum_i c_i x_i / \sum_i c_i` and the top eigenpair :math:`(\lambda, v)` of
    :math:`\sum_i c_i (x_i - \mu)(x_i - \mu)^T / \sum_i c_i`, returns :math:`\lambda` and
    :math:`\tau_i = \langle x_i - \mu, v \rangle^2`. Costs O(n^3).
    """
    products = gram.products[: gram.n, : gram.n]
    shares = weights / weights.sum()
    image = products @ shares
    centered = products - image[:, None] - image[None, :] + shares @ image
    # The d x d covariance has the same nonzero eigenvalues as this n x n matrix with entries
    # sqrt(c_i c_j) <x_i - mu, x_j - mu> / sum(c).
    roots = shares.sqrt()
    values, vectors = torch.linalg.eigh(centered * roots[:, None] * roots[None, :])
    variance = float(values[-1].clamp(min=0))
    if variance == 0.0:
        return 0.0, torch.zeros_like(weights)
    return variance, (centered @ (roots * vectors[:, -1])).square() / variance
