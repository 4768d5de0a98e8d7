"""Norms of tiles over rows against their definition in float64."""

import pytest
import torch
from torch import Tensor

from holdfast.errors import NonFiniteRowsError
from holdfast.geometry import DenseRows, Tiling
from holdfast.selectors import row_norms
from holdfast.selectors._sampling import inclusion_probabilities
from tests.samples import gaussian

N, SECTIONS = 7, (100, 33, 1, 70)
D = sum(SECTIONS)
WIDTHS = [1, 5, 16, 64, None]
every_width = pytest.mark.parametrize("width", WIDTHS)


def norms_of(rows: Tensor, width: int | None, *, capped: bool = True) -> Tensor:
    return row_norms(DenseRows(rows), Tiling(SECTIONS, width), capped=capped)[0]


def slow_norms(rows: Tensor, tiling: Tiling, capped: bool) -> Tensor:
    """The definition, in float64."""
    rows = rows.double()
    rows = rows[torch.isfinite(rows).all(1)]
    lengths = rows.norm(dim=1)
    if capped:
        median = lengths.sort().values[len(lengths) // 2]
        rows = rows * (median / lengths).clamp(max=1.0)[:, None]
    return tiling.sums(rows.square().sum(0)).sqrt()


@every_width
@pytest.mark.parametrize("capped", [True, False], ids=["capped", "literal"])
@pytest.mark.parametrize(
    "kind", ["matrix", "list", "float64", "bfloat16", "a long row", "a lost row"]
)
def test_norms_and_lengths_are_those_of_the_definition(
    width: int | None, capped: bool, kind: str
) -> None:
    rows = gaussian(N, D)
    if kind == "a long row":
        rows[2] *= 1e4
    if kind == "a lost row":
        rows[4, 17] = float("nan")
    rows = rows.to({"float64": torch.float64, "bfloat16": torch.bfloat16}.get(kind, torch.float32))
    parts = list(torch.split(rows, list(SECTIONS), dim=1))
    tiling = Tiling(SECTIONS, width)
    found, lengths = row_norms(DenseRows(parts if kind == "list" else rows), tiling, capped=capped)
    expected = slow_norms(rows, tiling, capped)
    assert found.dtype == lengths.dtype == torch.float64
    torch.testing.assert_close(found / found.sum(), expected / expected.sum(), rtol=1e-3, atol=1e-6)
    finite = torch.isfinite(rows).all(1)
    assert torch.isfinite(lengths).equal(finite)
    torch.testing.assert_close(
        lengths[finite], rows[finite].double().norm(dim=1), rtol=1e-3, atol=0
    )


@every_width
@pytest.mark.parametrize("size", [1e30, 1e-30, 1e15, 1e-15])
def test_norms_do_not_depend_on_the_unit(width: int | None, size: float) -> None:
    usual, found = norms_of(gaussian(N, D), width), norms_of(gaussian(N, D) * size, width)
    torch.testing.assert_close(found / found.sum(), usual / usual.sum(), rtol=1e-3, atol=1e-6)


@every_width
def test_a_row_of_any_size_counts_as_one(width: int | None) -> None:
    """Capped, a row of 1e30 counts as a median row; literally, it is all there is."""
    rows = gaussian(N, D)
    rows[0] = 0.0
    rows[0, 0] = 1e30
    capped, literal = (norms_of(rows, width, capped=capped).square() for capped in (True, False))
    assert float(capped[1:].sum() / capped.sum()) > 0.4
    assert float(literal[0] / literal.sum()) == pytest.approx(1.0)


@every_width
def test_row_weights_count_rows(width: int | None) -> None:
    """A weight of two is the row twice; a row of weight zero may hold anything."""
    rows = gaussian(N, D)
    rows[0] *= 100
    weights = torch.tensor([1.0, 2.0, 1.0, 0.0, 1.0, 3.0, 1.0], dtype=torch.float64)
    expected = norms_of(rows.repeat_interleave(weights.long(), 0), width)
    rows[3] = float("nan")
    tiling = Tiling(SECTIONS, width)
    found, _ = row_norms(DenseRows(rows), tiling, capped=True, row_weights=weights / 9)
    torch.testing.assert_close(found / found.sum(), expected / expected.sum(), rtol=1e-3, atol=1e-6)


@every_width
def test_zero_rows_have_norms_of_zero(width: int | None) -> None:
    assert norms_of(torch.zeros(4, D), width).count_nonzero() == 0


@every_width
def test_a_majority_that_is_not_finite_is_refused(width: int | None) -> None:
    rows = gaussian(N, D)
    rows[:4, 3] = float("inf")
    with pytest.raises(NonFiniteRowsError, match="got 4 of 7 with NaN or infinity"):
        norms_of(rows, width)


def test_without_the_cap_two_rows_hide_from_the_draw() -> None:
    """Uncapped, one row of 1e20 takes every chance that the columns of another lie had."""
    rows, lie = 0.1 * gaussian(15, D), slice(0, 40)
    rows[:, lie] = 0.0
    rows[0] = 0.0
    rows[0, 40:] = 1e20
    rows[1, lie] = 1e3
    chances = {
        capped: inclusion_probabilities(norms_of(rows, 1, capped=capped).square(), 20)
        for capped in (True, False)
    }
    assert float(chances[False][lie].sum()) < 1e-9
    assert float(chances[True][lie].mean()) > 0.01
