"""The Gram matrix: right on clean rows in one pass, right on hostile ones in more."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import NonFiniteRowsError
from holdfast.geometry import DenseRows, length
from tests.loops import naming
from tests.samples import common, gaussian


@given(
    n=st.integers(1, 8),
    d=st.integers(1, 40),
    seed=st.integers(0, 999),
    shift=st.sampled_from([0.0, 1.0, 1e4]),
)
def test_distances_norms_and_products(n: int, d: int, seed: int, shift: float) -> None:
    rows = gaussian(n, d, seed) + shift
    reference = gaussian(1, d, seed + 1)[0]
    gram = DenseRows(rows).gram((reference,))
    exact = rows.double()
    torch.testing.assert_close(gram.distances, torch.cdist(exact, exact), rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(gram.norms, exact.norm(dim=1), rtol=1e-4, atol=1e-6)
    products = gram.about_origin
    torch.testing.assert_close(
        products[:n, n], exact @ reference.double(), rtol=1e-3, atol=1e-3 * (1 + shift)
    )


def test_clean_rows_take_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = DenseRows(gaussian(8, 500))
    monkeypatch.setattr(DenseRows, "exact_products", None)
    monkeypatch.setattr(DenseRows, "magnitudes", None)
    assert not rows.gram().exact


@pytest.mark.parametrize("ratio", [1e3, 1e5])
def test_a_large_common_part_does_not_hide_the_spread(ratio: float) -> None:
    rows = common(10, 300, ratio)
    gram = DenseRows(rows).gram()
    assert gram.exact
    torch.testing.assert_close(
        gram.distances, torch.cdist(rows.double(), rows.double()), rtol=1e-6, atol=1e-9
    )


def test_the_center_is_not_a_row_of_the_same_norm_on_the_other_side() -> None:
    """Minus the common part has the median norm; centering there would lose the spread."""
    rows = common(9, 300, 1e5)
    rows[:4] = -rows[:4]
    gram = DenseRows(rows).gram()
    exact = torch.cdist(rows[4:].double(), rows[4:].double())
    torch.testing.assert_close(gram.distances[4:, 4:], exact, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_neither_overflow_nor_underflow(dtype: torch.dtype) -> None:
    for scale in (1e-36, 1e-20, 1e20, 1e36):
        rows = (scale * gaussian(7, 200, dtype=torch.float64)).to(dtype)
        gram = DenseRows(rows).gram()
        found = gram.distances * (gram.unit / scale)
        exact = torch.cdist(rows.double() / scale, rows.double() / scale)
        with naming(scale):
            torch.testing.assert_close(found, exact, rtol=1e-4, atol=1e-6)


def test_float64_beyond_the_range_of_squares() -> None:
    rows = gaussian(7, 50, dtype=torch.float64) * 1e250
    gram = DenseRows(rows).gram()
    torch.testing.assert_close(
        gram.distances * (gram.unit / 1e250),
        torch.cdist(rows / 1e250, rows / 1e250),
        rtol=1e-9,
        atol=1e-9,
    )
    rows[2] = 1e-40
    assert DenseRows(rows).gram().kept.tolist() == [0, 1, 2, 3, 4, 5, 6]
    rows[:6] /= 1e250
    # The last row is now as good as infinite.
    assert DenseRows(rows).gram().kept.tolist() == [0, 1, 2, 3, 4, 5]


def test_far_rows_keep_their_angles_to_near_ones() -> None:
    rows = gaussian(9, 100)
    rows[0] *= 1e30
    gram = DenseRows(rows).gram()
    seen = gram.about(4)[:9, :9]
    exact = rows.double() - rows[4].double()
    cosine = seen[0, 7] / (seen[0, 0] * seen[7, 7]).sqrt()
    assert float(cosine) == pytest.approx(
        float(torch.nn.functional.cosine_similarity(exact[0], exact[7], dim=0)), abs=1e-12
    )


def test_equal_rows_are_at_distance_zero() -> None:
    rows = gaussian(6, 1000)
    rows[3] = rows[1]
    assert DenseRows(rows).gram().distances[1, 3] == 0


def test_rows_that_are_not_finite_are_left_out() -> None:
    rows = gaussian(6, 10)
    rows[1, 2], rows[4] = float("nan"), float("-inf")
    gram = DenseRows(rows).gram()
    assert gram.kept.tolist() == [0, 2, 3, 5]
    assert (gram.n, gram.n_lost) == (4, 2)
    rows[0] = float("nan")
    assert DenseRows(rows).gram().n == 3  # exactly half are finite
    rows[2] = float("nan")
    with pytest.raises(NonFiniteRowsError, match=r"got 4 of 6 with NaN or infinity"):
        DenseRows(rows).gram()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("size", [1.0, 1e30, 1e-30, 1e-37])
def test_the_length_of_vectors_of_any_size(dtype: torch.dtype, size: float) -> None:
    assert length(torch.full((16,), size, dtype=dtype)) == pytest.approx(4 * size, rel=1e-5)


def test_the_length_of_vectors_at_the_edges_of_their_range() -> None:
    assert length(torch.full((4,), 1e200, dtype=torch.float64)) == pytest.approx(2e200)
    assert length(torch.zeros(5)) == 0.0
    assert length(torch.tensor([1.0, float("inf")])) == float("inf")
    assert not length(torch.tensor([1.0, float("nan")])) < float("inf")


def test_equal_rows_do_not_cost_the_careful_pass() -> None:
    """Attackers who all send the same row must not slow down everybody."""
    rows = gaussian(12, 500)
    rows[3:8] = rows[3]
    rows[9] = rows[1]
    gram = DenseRows(rows).gram()
    assert not gram.exact
    assert gram.same is not None
    assert gram.same.tolist() == [0, 1, 2, 3, 3, 3, 3, 3, 8, 1, 10, 11]
    assert gram.distances[3:8, 3:8].count_nonzero() == 0
    wanted = torch.cdist(rows.double(), rows.double())
    torch.testing.assert_close(gram.distances, wanted, rtol=1e-5, atol=1e-5)
    rows[4, 0] += 1e-4  # close, but not equal: float32 has lost the difference
    assert DenseRows(rows).gram().exact


def test_close_rows_that_are_not_equal_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []

    def never(self: DenseRows, i: int, j: int) -> bool:
        calls.append((i, j))
        return False

    monkeypatch.setattr(DenseRows, "are_equal", never)
    assert DenseRows(common(40, 300, 1e3)).gram().exact
    assert len(calls) == 1
