"""Sums of outer products: the form that weight gradients of linear layers and convolutions have in common.

With T positions per sample (one for a plain linear layer), sample i's gradient is the sum over t of the outer product of its output
gradient [o] and its input patch [p] at position t.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from holdfast.geometry import products_between
from holdfast.sources.layers._layer_gradients import LIMIT, squares

BLOCK = 64
"""Rows of one product: small enough to leave out most of the other side of the diagonal, large enough for a fast product."""


def pays_pairwise(n: int, n_positions: int, n_outputs: int, n_inputs: int) -> bool:
    """Whether products between all pairs of positions cost less than the samples' gradients and their products."""
    pairs = (n * n_positions) ** 2 * (
        n_inputs + n_outputs + 20
    )  # a product of two matrices' entries costs about 20 of their sums
    return pairs <= n * (n + n_positions) * n_outputs * n_inputs


def pairwise_products(patches: Tensor, gradients: Tensor) -> Tensor:
    r"""[n, n] :math:`\sum_{t, s} \langle u_{it}, u_{js} \rangle \langle \delta_{it}, \delta_{js} \rangle` of patches [n, T, p] and gradients [n, T, o]."""
    n, n_positions = patches.shape[:2]
    if n_positions == 1:
        return products_between(patches[:, 0], patches[:, 0]) * products_between(
            gradients[:, 0], gradients[:, 0]
        )
    u, delta = patches.flatten(0, 1), gradients.flatten(0, 1)
    chunk = max(1, LIMIT // (n_positions * n_positions * n))
    blocks = []
    for at in range(0, n, chunk):
        rows = slice(at * n_positions, (at + chunk) * n_positions)
        products = (u[rows] @ u.T).mul_(delta[rows] @ delta.T)
        blocks.append(
            products.view(-1, n_positions, n, n_positions).sum((1, 3), dtype=torch.float64)
        )
    return torch.cat(blocks)


def symmetric_products(rows: Tensor) -> Tensor:
    """[n, n] inner products of the rows [n, c]; of many rows only those on one side of the diagonal are computed."""
    n = len(rows)
    products = torch.empty(n, n, dtype=torch.float64, device=rows.device)
    for at in range(0, n, BLOCK):
        found = products_between(rows[at : at + BLOCK], rows[at:])
        products[at : at + BLOCK, at:] = found
        products[at:, at : at + BLOCK] = found.T
    return products


def explicit_norms(chunks: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """[n] squared norms of the samples' gradients, from the same chunks."""
    total: Tensor | None = None
    for gradients, patches in chunks:
        found = squares(torch.matmul(gradients, patches))
        total = found if total is None else total + found
    assert total is not None
    return total


def explicit_products(chunks: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """[n, n] inner products of the samples' gradients, which are formed a chunk of columns at a time.

    A chunk is gradients [n, ..., o, T] and patches [n, ..., T, c].
    """
    total: Tensor | None = None
    for gradients, patches in chunks:
        products = symmetric_products(torch.matmul(gradients, patches).flatten(1))
        total = products if total is None else total + products
    assert total is not None
    return total
