"""Where the majority of the rows is, and how far apart they usually are: from distances alone."""

import torch
from torch import Tensor

from holdfast.geometry._gram import Gram

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


def principal_scores(gram: Gram, weights: Tensor) -> tuple[float, Tensor]:
    r"""The largest variance of the weighted rows, and each row's squared deviation along the direction that has it.

    With :math:`\mu = \sum_i c_i x_i / \sum_i c_i` and the top eigenpair :math:`(\lambda, v)` of
    :math:`\sum_i c_i (x_i - \mu)(x_i - \mu)^T / \sum_i c_i`, returns :math:`\lambda` and
    :math:`\tau_i = \langle x_i - \mu, v \rangle^2`. The d x d matrix and the n x n one
    :math:`\sqrt{c_i c_j} \langle x_i - \mu, x_j - \mu \rangle / \sum c` have the same eigenvalues. O(n^3).
    """
    products = gram.products[: gram.n, : gram.n]
    shares = weights / weights.sum()
    image = products @ shares
    centred = products - image[:, None] - image[None, :] + shares @ image
    roots = shares.sqrt()
    values, vectors = torch.linalg.eigh(centred * roots[:, None] * roots[None, :])
    variance = float(values[-1].clamp(min=0))
    if variance == 0.0:
        return 0.0, torch.zeros_like(weights)
    return variance, (centred @ (roots * vectors[:, -1])).square() / variance
