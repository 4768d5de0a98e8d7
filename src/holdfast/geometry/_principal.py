"""The direction in which weighted rows vary most, found in Gram space."""

import torch
from torch import Tensor

from holdfast.geometry._gram import Gram


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
