"""Scores, lengths, blocks and sums of augmented rows against the rows that they never form."""

import pytest
import torch
from torch import Tensor

from holdfast.errors import NonFiniteRowsError
from holdfast.geometry import Block, DenseRows, Tiling
from holdfast.memory import AugmentedRows
from tests.samples import gaussian

N, SECTIONS = 7, (100, 33, 1, 70)
D = sum(SECTIONS)
WIDTHS = [1, 5, 16, 64, None]
CARRIED = {
    "nothing": None,
    "common": 3.0 * gaussian(1, D, seed=1)[0],
    "much": 1e4 * gaussian(1, D, seed=1)[0],
    "by row": 2.0 * gaussian(N, D, seed=2),
}


def parts(rows: Tensor) -> list[Tensor]:
    return list(torch.split(rows, list(SECTIONS), dim=1))


def slow_scores(rows: Tensor, carried: Tensor | None, tiling: Tiling, capped: bool) -> Tensor:
    """The definition, in float64, on formed rows."""
    rows = rows.double()
    extra = torch.zeros(D, dtype=torch.float64) if carried is None else carried.double()
    by_row = extra.ndim == 2
    clipped = rows + extra if by_row else rows
    finite = torch.isfinite(clipped).all(1)
    clipped, extra = clipped[finite], extra[finite] if by_row else extra
    lengths = clipped.norm(dim=1)
    if capped:
        median = lengths.sort().values[len(lengths) // 2]
        clipped = clipped * (median / lengths).clamp(max=1.0)[:, None]
    squares = (clipped if by_row else clipped + extra).square().sum(0)
    return tiling.sums(squares)


@pytest.mark.parametrize("carried", CARRIED.values(), ids=CARRIED)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("capped", [True, False], ids=["capped", "literal"])
@pytest.mark.parametrize(
    "kind", ["matrix", "list", "float64", "bfloat16", "a long row", "a lost row"]
)
def test_scores_are_those_of_the_formed_rows(
    carried: Tensor | None, width: int | None, capped: bool, kind: str
) -> None:
    rows = gaussian(N, D)
    if kind == "a long row":
        rows[2] *= 1e4
    if kind == "a lost row":
        rows[4, 17] = float("nan")
    dtype = {"float64": torch.float64, "bfloat16": torch.bfloat16}.get(kind, torch.float32)
    rows = rows.to(dtype)
    tiling = Tiling(SECTIONS, width)
    scale = 0.25
    given = (
        None
        if carried is None
        else carried.to(torch.float64 if dtype is torch.float64 else torch.float32)
    )
    augmented = AugmentedRows(DenseRows(parts(rows) if kind == "list" else rows), given, scale)
    found = augmented.scores(tiling, capped=capped)
    expected = slow_scores(rows, None if carried is None else scale * carried, tiling, capped)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found / found.sum(), expected / expected.sum(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("carried", CARRIED.values(), ids=CARRIED)
def test_blocks_and_sums_are_those_of_the_formed_rows(carried: Tensor | None) -> None:
    rows, scale = gaussian(N, D), 0.5
    formed = rows.double() + (0.0 if carried is None else scale * carried.double())
    augmented = AugmentedRows(DenseRows(rows), carried, scale)
    tiling = Tiling(SECTIONS, 16)
    block = Block(tiling, torch.tensor([0, 3, 7, 9]), torch.full((4,), 0.3, dtype=torch.float64))
    weights = torch.linspace(-0.2, 0.7, N, dtype=torch.float64)
    tolerance = 1e-6 * float(formed.norm())
    torch.testing.assert_close(
        augmented.block(block).combine(weights).double(),
        (weights @ formed)[block.columns],
        rtol=1e-5,
        atol=tolerance,
    )
    for exact in (False, True):
        torch.testing.assert_close(
            augmented.combine(weights, exact=exact).double(),
            weights @ formed,
            rtol=1e-5,
            atol=tolerance,
        )


@pytest.mark.parametrize("size", [1e30, 1e-30, 1e15, 1e-15])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("carries", [False, True])
def test_scores_do_not_depend_on_the_unit(size: float, width: int | None, carries: bool) -> None:
    rows, carried = gaussian(N, D), gaussian(1, D, seed=3)[0] if carries else None
    tiling = Tiling(SECTIONS, width)
    usual = AugmentedRows(DenseRows(rows), carried).scores(tiling, capped=True)
    scaled = AugmentedRows(
        DenseRows(rows * size), None if carried is None else carried * size
    ).scores(tiling, capped=True)
    torch.testing.assert_close(scaled / scaled.sum(), usual / usual.sum(), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_row_of_any_size_counts_as_one(width: int | None) -> None:
    """Capped, a row of 1e30 has the share of a median row in the scores; literally, it has all of it."""
    rows = gaussian(N, D)
    rows[0] = 0.0
    rows[0, 0] = 1e30
    tiling = Tiling(SECTIONS, width)
    capped = AugmentedRows(DenseRows(rows)).scores(tiling, capped=True)
    literal = AugmentedRows(DenseRows(rows)).scores(tiling, capped=False)
    assert float(capped[1:].sum() / capped.sum()) > 0.4
    assert float(literal[0] / literal.sum()) == pytest.approx(1.0)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("carried", CARRIED.values(), ids=CARRIED)
def test_row_weights_count_rows(width: int | None, carried: Tensor | None) -> None:
    """A weight of two is the row twice; a row of weight zero may hold anything."""
    rows, tiling = gaussian(N, D), Tiling(SECTIONS, width)
    rows[0] *= 100
    weights = torch.tensor([1.0, 2.0, 1.0, 0.0, 1.0, 3.0, 1.0])
    repeats = weights.long()
    by_row = carried is not None and carried.ndim == 2
    repeated = carried.repeat_interleave(repeats, 0) if by_row and carried is not None else carried
    expected = AugmentedRows(DenseRows(rows.repeat_interleave(repeats, 0)), repeated).scores(
        tiling, capped=True
    )
    rows[3] = float("nan")
    found = AugmentedRows(DenseRows(rows), carried, row_weights=weights).scores(tiling, capped=True)
    torch.testing.assert_close(found / found.sum(), expected / expected.sum(), rtol=1e-3, atol=1e-5)


def test_zero_rows_have_zero_scores() -> None:
    assert (
        AugmentedRows(DenseRows(torch.zeros(4, D)))
        .scores(Tiling(SECTIONS, 16), capped=True)
        .count_nonzero()
        == 0
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_a_majority_that_is_not_finite_is_refused(width: int | None) -> None:
    rows = gaussian(N, D)
    rows[:4, 3] = float("inf")
    with pytest.raises(NonFiniteRowsError, match="got 4 of 7 with NaN or infinity"):
        AugmentedRows(DenseRows(rows)).scores(Tiling(SECTIONS, width), capped=True)
