"""Rows in memory: every operation against plain tensors, in every layout and dtype."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from holdfast.aggregators import CoordinateMedian, rules
from holdfast.geometry import DenseRows, Gram, MixedColumnRows, Rows, Tiling
from holdfast.geometry._kernels import TILE
from tests.loops import naming
from tests.samples import gaussian

LAYOUTS: dict[str, Callable[[Tensor], Any]] = {
    "matrix": lambda rows: rows,
    "transposed": lambda rows: rows.T.contiguous().T,
    "strided": lambda rows: torch.stack([rows, rows], dim=2)[:, :, 0],
    "expanded": lambda rows: rows[:1].expand(len(rows), -1),
    "list": lambda rows: [rows[:, :5], rows[:, 5:6].squeeze(1), rows[:, 6:, None]],
    "channels last": lambda rows: [
        rows[:, :24]
        .reshape(len(rows), 2, 3, 2, 2)
        .permute(0, 1, 3, 4, 2)
        .contiguous()
        .permute(0, 1, 4, 2, 3),
        rows[:, 24:],
    ],
}


def flat(tensors: Tensor | list[Tensor]) -> Tensor:
    parts = [tensors] if isinstance(tensors, Tensor) else tensors
    return torch.cat([part.reshape(len(part), -1) for part in parts], dim=1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_operations_equal_those_of_the_flat_matrix(layout: str) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for d in (40, TILE - 1, TILE, 3 * TILE + 7):
            with naming(dtype, d):
                check_operations(LAYOUTS[layout](gaussian(4, d, dtype=dtype)), d, dtype)


def check_operations(tensors: Any, d: int, dtype: torch.dtype) -> None:
    close = torch.testing.assert_close
    rows, plain = DenseRows(tensors), flat(tensors).double()
    assert (rows.n, rows.d) == (4, d)
    reference = gaussian(2, d, seed=5, dtype=dtype)
    points = torch.cat([plain, reference.double()])
    close(rows.products(reference), points @ points.T, rtol=1e-5, atol=1e-4)
    shifted = 0.5 * (points - plain[2])
    close(rows.exact_products(reference, center=2, scale=0.5), shifted @ shifted.T)
    weights = torch.tensor([0.5, 0.0, -2.0, 0.25], dtype=torch.float64)
    for exact in (False, True):
        combined = rows.combine(weights, exact=exact)
        assert combined.dtype == dtype
        rtol = 1e-2 if dtype is torch.bfloat16 else 1e-5
        close(combined, (weights @ plain).to(dtype), rtol=rtol, atol=1e-5)
    close(rows.magnitudes().double(), plain.abs().amax(1))
    close(rows.squared_norms(), plain.square().sum(1), rtol=1e-5, atol=1e-5)
    assert torch.as_tensor(rows).double().equal(plain)
    assert (len(rows), rows[-1].double().equal(plain[-1])) == (4, True)
    assert torch.as_tensor(rows[1:3]).double().equal(plain[1:3])
    assert torch.cat([chunk for _, chunk in rows.chunks(7)], dim=1).double().equal(plain)
    kept = rows.keep(torch.tensor([3, 1]))
    assert kept.matrix().double().equal(plain[[3, 1]])
    assert [tensor.shape[0] for tensor in kept.tensors] == [2] * len(rows.tensors)
    assert flat([*kept.tensors]).double().equal(plain[[3, 1]])
    some = points[[3, 1, 4, 5]]
    close(kept.products(reference), some @ some.T, rtol=1e-5, atol=1e-4)
    last = [chunk for _, chunk in kept.keep(torch.tensor([1])).chunks(9)]
    assert torch.cat(last, dim=1).double().equal(plain[1:2])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tiles_are_those_of_the_flat_matrix(layout: str) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for width in (1, 3, 8, 64, None):
            with naming(dtype, "tiles of width", width):
                check_tiles(LAYOUTS[layout](gaussian(4, 300, dtype=dtype)), width)


def check_tiles(tensors: Any, width: int | None) -> None:
    close = torch.testing.assert_close
    rows, plain = DenseRows(tensors), flat(tensors)
    tiling = Tiling(rows.sections, width)
    tiles = torch.arange(0, tiling.n_tiles, 2)
    columns = tiling.columns(tiles)
    starts = [tiling.columns(torch.tensor([tile])) for tile in range(tiling.n_tiles)]
    expected = torch.stack([plain[:, at].double().norm(dim=1) for at in starts], dim=1)
    for seen, picked in ((rows, [0, 1, 2, 3]), (rows.keep(torch.tensor([2, 0])), [2, 0])):
        assert seen.tiles(tiling, tiles).equal(plain[picked][:, columns])
        close(seen.tile_norms(tiling).double(), expected[picked], rtol=1e-5, atol=1e-7)


def test_tile_norms_know_every_size() -> None:
    """A wide tile that is read in parts, entries of extreme size, and rows that are not finite."""
    rows = torch.ones(7, 300_001)
    scales = torch.tensor([1e30, 1e-30, 1.0, 0.0, float("inf"), float("nan"), -1e38])
    scaled = DenseRows(rows * scales[:, None])
    norms = scaled.tile_norms(Tiling((300_001,), None))[:, 0]
    finite = torch.tensor([0, 1, 2, 3, 6])
    torch.testing.assert_close(
        norms[finite], scales[finite].double().abs() * 300_001**0.5, rtol=1e-6, atol=0.0
    )
    assert not torch.isfinite(norms[[4, 5]]).any()


@pytest.mark.parametrize("d", [10, 3 * TILE + 7])
def test_sweep_is_sum_and_products(d: int) -> None:
    rows = gaussian(5, d)
    weights, out = torch.linspace(0.1, 0.9, 5, dtype=torch.float64), torch.empty(d)
    products = DenseRows(rows).sweep(weights, out)
    torch.testing.assert_close(out, (weights @ rows.double()).float(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        products, rows.double() @ (weights @ rows.double()), rtol=1e-4, atol=1e-3
    )


def test_a_sweep_may_measure_a_row_beside_its_sum() -> None:
    rows = gaussian(5, 3 * TILE + 7)
    weights, out = torch.linspace(0.1, 0.9, 5, dtype=torch.float64), torch.empty(3 * TILE + 7)
    dense = DenseRows([rows[:, :30], rows[:, 30:]])
    products = dense.sweep(weights, out, with_row=3)
    torch.testing.assert_close(out, (weights @ rows.double()).float(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(products, rows.double() @ rows[3].double(), rtol=1e-4, atol=1e-2)


def test_combining_no_row_is_zero() -> None:
    assert torch.equal(DenseRows(gaussian(3, 4)).combine(torch.zeros(3)), torch.zeros(4))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
def test_rows_of_weight_zero_have_no_part(value: float) -> None:
    rows = gaussian(5, 4)
    rows[1] = value
    assert torch.equal(DenseRows(rows).combine(torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0])), rows[2])
    most = torch.tensor([0.25, 0.0, 0.25, 0.25, 0.25])
    torch.testing.assert_close(DenseRows(rows).combine(most), rows[[0, 2, 3, 4]].mean(0))


def test_user_settings_of_precision_do_not_reach_the_products() -> None:
    rows = DenseRows(gaussian(6, 5000))
    wanted = rows.products(torch.empty(0, 5000))
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        assert torch.equal(rows.products(torch.empty(0, 5000)), wanted)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


@given(n=st.integers(1, 6), m=st.integers(1, 5), d=st.integers(1, 30), seed=st.integers(0, 999))
def test_mixed_rows_are_what_they_say(n: int, m: int, d: int, seed: int) -> None:
    rows = gaussian(n, d, seed, torch.float64)
    matrix = gaussian(m, n, seed + 1, torch.float64).abs()
    dense = DenseRows(rows)
    mixed, plain = MixedColumnRows(dense, matrix, dense.gram()), matrix @ rows
    weights = gaussian(1, m, seed + 2, torch.float64)[0]
    torch.testing.assert_close(mixed.combine(weights), weights @ plain)
    torch.testing.assert_close(torch.cat([chunk for _, chunk in mixed.chunks(7)], dim=1), plain)
    torch.testing.assert_close(mixed.gram().about_origin[:m, :m], plain @ plain.T)
    kept = mixed.keep(torch.tensor([m - 1]))
    torch.testing.assert_close(kept.gram().about_origin[:1, :1], plain[-1:] @ plain[-1:].T)
    torch.testing.assert_close(kept.combine(torch.ones(1)), plain[-1])
    tiling = Tiling((d,), 4)
    tiles = torch.arange(0, tiling.n_tiles, 2)
    torch.testing.assert_close(mixed.tiles(tiling, tiles), plain[:, tiling.columns(tiles)])
    torch.testing.assert_close(mixed.tile_norms(tiling), DenseRows(plain).tile_norms(tiling))


def test_a_tensor_that_is_no_matrix_is_never_copied_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients in channels_last cannot be viewed as [n, d]; only pieces may be flattened."""
    largest = 0
    flatten = Tensor.flatten

    def watched(self: Tensor, *args: int) -> Tensor:
        nonlocal largest
        largest = max(largest, self.numel())
        return flatten(self, *args)

    weights = (
        gaussian(4, 64 * 64 * 9)
        .reshape(4, 64, 64, 3, 3)
        .permute(0, 1, 3, 4, 2)
        .contiguous()
        .permute(0, 1, 4, 2, 3)
    )
    rows = DenseRows([weights])
    monkeypatch.setattr("holdfast.geometry._parts.CACHED", 2**14)
    monkeypatch.setattr(Tensor, "flatten", watched)
    rows.products(torch.empty(0, rows.d))
    rows.combine(torch.ones(4))
    rows.tile_norms(Tiling(rows.sections, 64))
    rows.tiles(Tiling(rows.sections, 64), torch.arange(0, 500, 3))
    assert 0 < largest <= 2**15  # tiles need not end where slabs do


class OnlyProducts(Rows):
    """Rows that offer only inner products and sums, as layer-wise gradients do."""

    def __init__(self, matrix: Tensor) -> None:
        self._dense = DenseRows(matrix)
        self.n, self.d, self.dtype, self.device = *matrix.shape, matrix.dtype, matrix.device

    def gram(self, references: Sequence[Tensor] = (), row_weights: Tensor | None = None) -> Gram:
        return self._dense.gram(references, row_weights)

    def combine(self, weights: Tensor, *, exact: bool = False) -> Tensor:
        return self._dense.combine(weights, exact=exact)

    def keep(self, indices: Tensor) -> "OnlyProducts":
        return OnlyProducts(self._dense.keep(indices).matrix())


@pytest.mark.parametrize(
    "text",
    [
        "geometric-median",
        "krum(n_bad=2)",
        "mixing(n_bad=2) | geometric-median",
        "covariance-filter",
        "mean",
    ],
)
def test_products_and_sums_are_enough_for_rules_in_gram_space(text: str) -> None:
    matrix = gaussian(9, 30)
    assert torch.equal(rules.parse(text)(OnlyProducts(matrix)), rules.parse(text)(matrix))


def test_rows_without_columns_say_so() -> None:
    rows = OnlyProducts(gaussian(9, 30))
    assert rows.finite().all()
    with pytest.raises(ValueError, match=r"^OnlyProducts cannot be read by column; use PerSample"):
        CoordinateMedian()(rows)
    assert [float(row[0]) for row in rows] == gaussian(9, 30)[:, 0].tolist()
    with pytest.raises(IndexError, match="row 9 of 9 rows"):
        rows[9]
