"""The center and the spread of the majority of rows, from their Gram matrix."""

import torch
from torch import Tensor

# Clipping rows to this distance moves a median by less than 1 / FAR of a usual distance.
FAR = 1e5
"""Rows farther than this many usual distances count as infinitely far."""

_ROUNDING = 1e-12
"""Tolerance for the rounding of sums, so that exactly half of the weight counts as half."""


def normalized(weights: Tensor) -> Tensor:
    """The weights, scaled to the sum 1."""
    return weights / weights.sum()


def weights_or_equal(weights: Tensor | None, n: int) -> Tensor:
    """[n] the weights of rows; equal ones with the sum 1 if none were given."""
    return torch.full((n,), 1.0 / n, dtype=torch.float64) if weights is None else weights


def nearer_half(distances: Tensor, weights: Tensor) -> Tensor:
    """The weighted sum, over the last dimension, of the nearest half (in weight) of distances."""
    ordered, order = distances.sort(dim=-1)
    sorted_weights = weights[order]
    below = sorted_weights.cumsum(-1) - sorted_weights
    is_near = below < 0.5 * weights.sum() * (1 - _ROUNDING)
    return (sorted_weights * ordered).where(is_near, 0.0).sum(-1)


def least(values: Tensor, ties: Tensor) -> int:
    """The position of the smallest of the values [n]; among equals, of the smallest `ties` [n]."""
    return int(least_of_each(values, ties))


def least_of_each(values: Tensor, ties: Tensor) -> Tensor:
    """[...] the same for every set of values [..., n]."""
    # The second measure makes the choice independent of the order of rows.
    tied = values <= values.amin(-1, keepdim=True) * (1 + _ROUNDING)
    return torch.where(tied, ties, torch.inf).argmin(-1)


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
    """[..., n] for every row of the distances [..., n, n], its :func:`half_weight_radius`."""
    if bool((weights == weights[0]).all()):
        # To select one of 512 distances takes a third of the time of sorting them.
        return distances.kthvalue(len(weights) // 2 + 1, dim=-1).values
    ordered, order = distances.sort(dim=-1)
    reached = weights[order].cumsum(-1) > 0.5 * weights.sum() * (1 + _ROUNDING)
    return ordered.gather(-1, reached.to(torch.uint8).argmax(-1, keepdim=True))[..., 0]


def squared_hull_distances(products: Tensor) -> Tensor:
    """[n] lower bounds on the squared distance of each point from all means of the other points.

    `products` [n, n] are inner products about any point. The bounds are the squared distances from
    the affine hulls of the others, zero if those are lost in rounding. Costs O(n^3).
    """
    # A slightly smaller matrix has smaller distances, and it has no inverse in case of doubt.
    smaller = products - torch.diag(1e-9 * products.diagonal())
    factor, failed = torch.linalg.cholesky_ex(smaller)
    if bool(failed):
        return torch.zeros_like(products[0])
    inverse = torch.cholesky_inverse(factor)
    # The diagonal of an inverse holds the reciprocals of the squared distances from the span of the
    # others and the base point; the correction lets the base point go.
    sums = inverse.sum(1)
    return 1.0 / (inverse.diagonal() - sums.square() / sums.sum())
