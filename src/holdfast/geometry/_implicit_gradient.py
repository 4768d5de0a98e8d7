"""The gradient of a geometric median in its rows, by implicit differentiation."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from holdfast.geometry._dense_rows import DenseRows
from holdfast.geometry._gram import SAME, Gram

FLAT = 1e-10
"""Curvature below this share of the largest counts as none."""


def attach_gradient(vector: Tensor, eta: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    r"""The geometric median `vector` [d] of `tensors` [n, ...], as a function of them.

    With distances :math:`d_i` and unit vectors :math:`u_i` from the median y to row i, weights
    :math:`a_i = \eta_i / d_i` and the Hessian :math:`H = \sum_i a_i (I - u_i u_i^T)`, the incoming
    gradient v gives :math:`q = H^{-1} v`, and row i gets :math:`a_i (q - u_i \langle u_i, q
    \rangle)`. One pass over the rows gives their inner products, a second one q, a third one writes
    the result.

    Where the median is a row, that row gets v; equal rows share it by their weights `eta` [n]. (At
    the border, where the pull of the others equals the row's weight, the derivative does not exist,
    and this is the one from inside.) Along a line that holds all rows there is no curvature, and H
    is replaced by its pseudo-inverse: nothing flows along the line. Rows that are not finite get
    zeros. The second derivative is not available.
    """
    attached: Tensor = _Median.apply(vector, eta, *tensors)  # type: ignore[no-untyped-call]
    return attached


class _Median(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vector: Tensor, eta: Tensor, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(vector, eta, *tensors)
        return vector.view_as(vector)

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor | None, ...]:
        vector, eta, *tensors = ctx.saved_tensors
        # Autocast would round inner products to the three digits of half precision.
        with torch.no_grad(), torch.autocast(vector.device.type, enabled=False):
            found = _gradients(vector, eta, tensors, incoming)
        if torch.is_grad_enabled():  # `create_graph`
            # `once_differentiable` looks at `incoming` only, and would detach from the rows.
            once: Any = _NoSecondDerivative
            found = [once.apply(one, incoming, *tensors) for one in found]
        return None, None, *found


class _NoSecondDerivative(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, gradient: Tensor, *_inputs: Tensor) -> Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(_ctx: Any, *_incoming: Tensor) -> Tensor:
        raise RuntimeError("The geometric median has no second derivative; differentiate it once.")


def _gradients(
    vector: Tensor, eta: Tensor, tensors: Sequence[Tensor], incoming: Tensor
) -> list[Tensor]:
    """One gradient per tensor [n, ...]: outer[i] * q - inner[i] * (x_i - y) for row i."""
    largest = float(incoming.abs().max())
    if not 0 < largest < float("inf"):  # zero, or an overflow that a gradient scaler must see
        return [torch.full_like(tensor, largest * 0.0) for tensor in tensors]
    rows = DenseRows(tensors)
    # At the length of the rows, v loses no digits beside them, and none of theirs.
    unit = float(rows.magnitudes().where(rows.magnitudes().isfinite(), 0.0).max()) / largest or 1.0
    incoming = incoming * unit
    gram = rows.gram([vector, incoming], eta)
    weights = eta[gram.kept]
    outer, inner, moves, share = _coefficients(gram, weights / weights.sum())
    everywhere = torch.zeros(3, rows.n, dtype=torch.float64)
    everywhere[:, gram.kept] = torch.stack([outer, inner, moves])
    # q = share * v + sum_j moves_j (x_j - y)
    q = rows.combine(everywhere[2], exact=gram.exact)
    q.sub_(vector, alpha=float(moves.sum())).add_(incoming, alpha=share)
    everywhere = everywhere[:2].to(rows.device, rows.dtype)
    lost = torch.ones(rows.n, dtype=torch.bool).index_fill_(0, gram.kept, False).nonzero()[:, 0]
    edges = [0, *torch.tensor([one[0].numel() for one in tensors]).cumsum(0).tolist()]
    found = []
    for tensor, (start, stop) in zip(tensors, pairwise(edges), strict=True):
        shape, factors = tensor.shape[1:], everywhere.view(2, -1, *[1] * (tensor.ndim - 1))
        gradient = tensor - vector[start:stop].view(shape)
        gradient.mul_(-factors[1]).addcmul_(factors[0], q[start:stop].view(shape))
        found.append(gradient.index_fill_(0, lost.to(rows.device), 0.0).div_(unit))
    return found


def _coefficients(gram: Gram, eta: Tensor) -> tuple[Tensor, Tensor, Tensor, float]:
    """`outer`, `inner` and `moves` [n], and the share of v in q."""
    n = gram.n
    # Inner products of the differences x_i - y, and of these with v; the points after the rows are
    # y, v and the origin.
    about = gram.about(n)
    seen, toward = about[:n, :n], about[:n, n + 1] - about[:n, -1]
    squared = seen.diagonal()
    here = squared <= SAME * (gram.products.diagonal()[:n] + gram.products[n, n])
    if bool(here.any()):
        own = torch.where(here, eta, 0.0)
        return own / own.sum(), torch.zeros_like(eta), torch.zeros_like(eta), 1.0
    pulls = eta / squared.sqrt()
    total = float(pulls.sum())
    # The Hessian is H = total * I - V V^T with columns V_i = roots_i (x_i - y), so with the
    # eigenvalues b and eigenvectors W of V^T V, H^-1 v = (v + V W (total - b)^-1 W^T V^T v) /
    # total.
    roots = (pulls / squared).sqrt()
    values, vectors = torch.linalg.eigh(seen * roots * roots[:, None])
    curvature = total - values
    # Without curvature the direction is taken out of v: the pseudo-inverse.
    inverse = torch.where(curvature > FLAT * total, 1 / curvature, -1 / values)
    moves = roots * (vectors @ (inverse * (vectors.T @ (roots * toward)))) / total
    along = toward / total + seen @ moves  # <x_i - y, q>
    return pulls, pulls * along / squared, moves, 1 / total
