"""Sampled inner products with exact lengths, and the passes that make them exact."""

import pytest
import torch

from holdfast.geometry import DenseRows, Sketch
from holdfast.geometry._kernels import BLOCK, TILE
from tests.geometry.test_streaming_median import unsampled
from tests.holders import Holder, on_holders
from tests.samples import gaussian


@pytest.mark.parametrize("n", [5, BLOCK, 2 * BLOCK + 3])
def test_products_of_many_rows_are_symmetric_and_right(n: int) -> None:
    rows = gaussian(n, TILE + 9)
    found = DenseRows(rows).products(torch.empty(0, TILE + 9))
    torch.testing.assert_close(found, rows.double() @ rows.double().T, rtol=1e-5, atol=1e-2)
    assert torch.equal(found[:BLOCK, BLOCK:], found[BLOCK:, :BLOCK].T)


def test_products_with_a_row() -> None:
    rows = gaussian(7, TILE + 9)
    for dense in (DenseRows(rows), DenseRows([rows[:, :30], rows[:, 30:]])):
        found = dense.products_with_row(3)
        torch.testing.assert_close(found, rows.double() @ rows[3].double(), rtol=1e-5, atol=1e-2)


def test_sampled_products_estimate_all_products() -> None:
    rows = gaussian(30, 200_000) + 1
    for dense in (DenseRows(rows), DenseRows([rows[:, :50], rows[:, 50:5000], rows[:, 5000:]])):
        sampled, share = dense.sampled_products(16)
        assert 1 / 40 < share < 1 / 16
        torch.testing.assert_close(sampled, rows.double() @ rows.double().T, rtol=0.1, atol=0.0)


def test_a_sketch_has_exact_lengths_and_right_angles_to_what_it_cannot_see() -> None:
    rows = gaussian(30, 40_000)
    rows[4] *= unsampled(40_000, 16)
    sketch = Sketch.of(DenseRows(rows), 16)
    assert sketch is not None
    squares = rows.double().square().sum(1)
    torch.testing.assert_close(sketch.products.diagonal(), squares, rtol=1e-6, atol=0.0)
    assert not sketch.products[4, 5:].any()
    expected = (squares[4] + squares[5]).sqrt()
    torch.testing.assert_close(sketch.distances[4, 5], expected, rtol=1e-6, atol=0.0)


def test_holders_of_columns_share_one_sketch() -> None:
    rows = gaussian(30, 40_000)
    cuts = [0, 9000, 40_000]

    def sketch(rank: int, holder: Holder) -> Sketch | None:
        mine = rows[:, cuts[rank] : cuts[rank + 1]].clone()
        return Sketch.of(DenseRows(mine, holders=holder), 16)

    first, second = on_holders(2, sketch)
    assert first is not None
    assert second is not None
    assert first.share == second.share
    assert torch.equal(first.products, second.products)
    torch.testing.assert_close(first.squares, rows.double().square().sum(1), rtol=1e-6, atol=0.0)
