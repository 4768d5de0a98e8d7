"""Rows in memory: every operation against plain tensors, in every layout and dtype."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from holdfast.geometry import DenseRows, MixedRows
from holdfast.geometry._kernels import TILE
from tests.samples import gaussian

LAYOUTS: dict[str, Callable[[Tensor], Any]] = {
    "matrix": lambda rows: rows,
    "transposed": lambda rows: rows.T.contiguous().T,
    "strided": lambda rows: torch.stack([rows, rows], dim=2)[:, :, 0],
    "expanded": lambda rows: rows[:1].expand(len(rows), -1),
    "list": lambda rows: [rows[:, :5], rows[:, 5:6].squeeze(1), rows[:, 6:, None]],
    "channels last": lambda rows: [
        rows[:, :24].reshape(len(rows), 2, 3, 2, 2).permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3),
        rows[:, 24:],
    ],
}


def flat(tensors: Tensor | list[Tensor]) -> Tensor:
    parts = [tensors] if isinstance(tensors, Tensor) else tensors
    return torch.cat([part.reshape(len(part), -1) for part in parts], dim=1)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("d", [40, TILE - 1, TILE, 3 * TILE + 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_operations_equal_those_of_the_flat_matrix(layout: str, d: int, dtype: torch.dtype) -> None:
    tensors = LAYOUTS[layout](gaussian(4, d, dtype=dtype))
    rows, plain = DenseRows(tensors), flat(tensors).double()
    assert (rows.n, rows.d) == (4, d)
    reference = gaussian(2, d, seed=5, dtype=dtype)
    points = torch.cat([plain, reference.double()])
    torch.testing.assert_close(rows.products(reference), points @ points.T, rtol=1e-5, atol=1e-4)
    shifted = 0.5 * (points - plain[2])
    torch.testing.assert_close(rows.exact_products(reference, centre=2, scale=0.5), shifted @ shifted.T)
    weights = torch.tensor([0.5, 0.0, -2.0, 0.25], dtype=torch.float64)
    for exact in (False, True):
        combined = rows.combine(weights, exact=exact)
        assert combined.dtype == dtype
        torch.testing.assert_close(
            combined, (weights @ plain).to(dtype), rtol=1e-2 if dtype is torch.bfloat16 else 1e-5, atol=1e-5
        )
    torch.testing.assert_close(rows.magnitudes().double(), plain.abs().amax(1))
    torch.testing.assert_close(rows.squared_norms(), plain.square().sum(1), rtol=1e-5, atol=1e-5)
    block = torch.tensor([0, 3, 30, d - 1])
    torch.testing.assert_close(flat(rows.columns(block)._parts).double(), plain[:, block])
    assert torch.cat([chunk for _, chunk in rows.chunks(7)], dim=1).double().equal(plain)
    assert next(start for start, _ in rows.chunks(7)) == 0
    kept = rows.keep(torch.tensor([3, 1]))
    torch.testing.assert_close(kept.products(reference), *[points[[3, 1, 4, 5]] @ points[[3, 1, 4, 5]].T], rtol=1e-5, atol=1e-4)
    assert torch.cat([chunk for _, chunk in kept.keep(torch.tensor([1])).chunks(9)], dim=1).double().equal(plain[1:2])


@pytest.mark.parametrize("d", [10, 3 * TILE + 7])
def test_sweep_is_sum_and_products(d: int) -> None:
    rows = gaussian(5, d)
    weights, out = torch.rand(5, dtype=torch.float64), torch.empty(d)
    products = DenseRows(rows).sweep(weights, out)
    torch.testing.assert_close(out, (weights @ rows.double()).float(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(products, rows.double() @ (weights @ rows.double()), rtol=1e-4, atol=1e-3)


def test_combining_no_row_is_zero() -> None:
    assert torch.equal(DenseRows(gaussian(3, 4)).combine(torch.zeros(3)), torch.zeros(4))


def test_rows_of_weight_zero_are_not_read() -> None:
    rows = gaussian(3, 4)
    rows[1] = float("nan")
    assert torch.equal(DenseRows(rows).combine(torch.tensor([0.0, 0.0, 1.0])), rows[2])


def test_user_settings_of_precision_do_not_reach_the_products() -> None:
    rows = DenseRows(gaussian(6, 5000))
    wanted = rows.products(torch.empty(0, 5000))
    torch.set_float32_matmul_precision("medium")
    try:
        assert torch.equal(rows.products(torch.empty(0, 5000)), wanted)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


@given(n=st.integers(1, 6), m=st.integers(1, 5), d=st.integers(1, 30), seed=st.integers(0, 999))
def test_mixed_rows_are_what_they_say(n: int, m: int, d: int, seed: int) -> None:
    rows = gaussian(n, d, seed, torch.float64)
    matrix = torch.rand(m, n, dtype=torch.float64)
    dense = DenseRows(rows)
    mixed, plain = MixedRows(dense, matrix, dense.gram()), matrix @ rows
    weights = torch.rand(m, dtype=torch.float64)
    torch.testing.assert_close(mixed.combine(weights), weights @ plain)
    torch.testing.assert_close(torch.cat([chunk for _, chunk in mixed.chunks(7)], dim=1), plain)
    torch.testing.assert_close(mixed.gram().about(-1)[:m, :m], plain @ plain.T)
    kept = mixed.keep(torch.tensor([m - 1]))
    torch.testing.assert_close(kept.gram().about(-1)[:1, :1], plain[-1:] @ plain[-1:].T)
    torch.testing.assert_close(kept.combine(torch.ones(1)), plain[-1])
    torch.testing.assert_close(mixed.columns(torch.tensor([0, d - 1])).combine(weights), (weights @ plain)[[0, d - 1]])
