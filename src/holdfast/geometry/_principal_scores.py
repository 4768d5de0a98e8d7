"""The direction of the largest variance of weighted rows, for one set of weights after another."""

import math
from typing import final

import torch
from torch import Tensor

from holdfast.geometry._gram import Gram

MANY_ROWS = 256
"""From here on Lanczos' method is faster than all eigenvectors: at 512 rows seven times."""

RESIDUAL = 1e-13
"""The largest residual of an eigenvector, relative to its eigenvalue."""

FIRST_CHECK = 10
"""Lanczos steps before the first look at the residual."""


@final
class PrincipalScores:
    r"""The largest variance of weighted rows, and each row's squared deviation along it.

    With :math:`\mu = \sum_i c_i x_i / \sum_i c_i` and the top eigenpair :math:`(\lambda, v)` of
    :math:`\sum_i c_i (x_i - \mu)(x_i - \mu)^T / \sum_i c_i`, a call with weights c [n] returns
    :math:`\lambda` and :math:`\tau_i = \langle x_i - \mu, v \rangle^2`. Costs O(n^3), with many
    rows O(n^2) per Lanczos step, of which some 40 to 200 are needed. They start from the
    eigenvector of the call before.
    """

    def __init__(self, gram: Gram) -> None:
        self._products = gram.products[: gram.n, : gram.n]
        # Every eigenvector must have a part in the start, also after a call that ended in a
        # direction which is perpendicular to it: no row is left out of this one.
        self._spread = torch.arange(gram.n, dtype=torch.float64).square().cos()
        self._start = self._spread

    def __call__(self, weights: Tensor) -> tuple[float, Tensor]:
        shares = weights / weights.sum()
        image = self._products @ shares
        centered = self._products - image[:, None] - image + shares @ image
        # The d x d covariance has the same nonzero eigenvalues as this n x n matrix with entries
        # sqrt(c_i c_j) <x_i - mu, x_j - mu> / sum(c).
        roots = shares.sqrt()
        value, vector = self._top(centered * roots[:, None] * roots)
        if value <= 0.0:
            return 0.0, torch.zeros_like(weights)
        # Divided by a power of two near the root of the variance, which costs no digit: one row of
        # 1e78 would overflow in the square.
        unit = 2.0 ** (math.frexp(value)[1] // 2)
        return value, (centered @ (roots * vector) / unit).square() / (value / unit / unit)

    def _top(self, matrix: Tensor) -> tuple[float, Tensor]:
        """The largest eigenvalue of the matrix [n, n], and its eigenvector."""
        found = _lanczos(matrix, self._start) if len(matrix) >= MANY_ROWS else None
        if found is None:
            values, vectors = torch.linalg.eigh(matrix)
            found = float(values[-1]), vectors[:, -1]
        self._start = found[1] + self._spread / self._spread.norm()
        return found


def _lanczos(matrix: Tensor, start: Tensor) -> tuple[float, Tensor] | None:
    """The largest eigenvalue and its eigenvector; None if all of them are cheaper to compute."""
    n_steps = len(matrix) // 2
    basis = torch.empty(n_steps, len(matrix), dtype=matrix.dtype)
    reduced = torch.zeros(n_steps, n_steps, dtype=matrix.dtype)
    image, length, check = start, float(start.norm()), FIRST_CHECK
    for step in range(n_steps):
        torch.div(image, length, out=basis[step])
        known = basis[: step + 1]
        image = torch.mv(matrix, basis[step])
        # Twice, because rounding would bring back directions that were found before.
        for _ in range(2):
            along = torch.mv(known, image)
            image -= torch.mv(known.T, along)
            reduced[step, step] += along[step]
        length = float(image.norm())
        if step + 1 == check:
            values, vectors = torch.linalg.eigh(reduced[: step + 1, : step + 1])
            largest = float(values[-1])
            residual = length * abs(float(vectors[-1, -1]))
            if residual <= RESIDUAL * largest:
                return largest, torch.mv(known.T, vectors[:, -1])
            check = min(n_steps, _next_check(check, residual / largest if largest > 0 else 1.0))
        if length == 0.0:  # the start lies in a space of few eigenvectors
            return None
        if step + 1 < n_steps:
            reduced[step + 1, step] = length  # `eigh` reads the lower triangle
    return None


def _next_check(check: int, residual: float) -> int:
    """The Lanczos step at which the relative `residual` found at step `check` may be small."""
    # A late look costs as much as 20 to 50 steps. The residual falls faster and faster, so its mean
    # rate up to now asks for too many more steps, at first for far too many.
    more = math.log(RESIDUAL) / math.log(residual) - 1 if residual < 1.0 else math.inf
    return check + max(5, int(check * min(0.7 * more, 0.5)))
