"""The largest variance of weighted rows: Lanczos' method against all eigenvectors."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from holdfast.geometry import DenseRows, PrincipalScores, squared_hull_distances
from holdfast.geometry import _principal_scores as module
from tests.oracle import rules as oracle
from tests.samples import gaussian

SCENES: dict[str, Callable[[Tensor], Tensor]] = {
    "flat": lambda rows: rows,
    "attacked": lambda rows: torch.cat([-100 * rows[:30], rows[30:]]),
    "of many lengths": lambda rows: rows * torch.linspace(0.2, 5.0, len(rows))[:, None],
    "two kinds": lambda rows: torch.cat(
        [rows[:150] * (torch.arange(rows.shape[1]) < 200), rows[150:].roll(1, 1).tril(-200)]
    ),
}


@pytest.mark.parametrize("scene", SCENES)
def test_many_rows_agree_with_all_eigenvectors(scene: str) -> None:
    rows = SCENES[scene](gaussian(300, 2000, dtype=torch.float64))
    gram = DenseRows(rows).gram()
    products = gram.products[:300, :300]
    scores_of = PrincipalScores(gram)
    assert len(rows) >= module.MANY_ROWS
    weights = torch.ones(300, dtype=torch.float64)
    for _ in range(6):
        variance, scores = scores_of(weights)
        expected = oracle.principal_scores(products, weights)
        assert variance == pytest.approx(expected[0], rel=1e-10)
        torch.testing.assert_close(scores, expected[1], rtol=1e-6, atol=1e-6 * float(scores.max()))
        weights = weights * (1 - scores / scores.max())


def test_few_steps_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    """All eigenvectors are the way out, not the way."""
    gram = DenseRows(gaussian(300, 20_000)).gram()

    whole = torch.linalg.eigh

    def small(matrix: Tensor) -> object:
        assert len(matrix) < 300
        return whole(matrix)

    monkeypatch.setattr(torch.linalg, "eigh", small)
    assert PrincipalScores(gram)(torch.ones(300, dtype=torch.float64))[0] > 0


@pytest.mark.parametrize("n", [1, 2, 5, 300])
def test_equal_rows_have_no_variance(n: int) -> None:
    gram = DenseRows(torch.ones(n, 3, dtype=torch.float64)).gram()
    variance, scores = PrincipalScores(gram)(torch.ones(n, dtype=torch.float64))
    assert variance == pytest.approx(0.0, abs=1e-12)
    assert bool((scores * variance <= 1e-12).all())


def test_tied_directions_have_the_right_variance() -> None:
    """Orthogonal rows of one length: every direction is as good."""
    gram = DenseRows(torch.eye(300, dtype=torch.float64)).gram()
    variance, scores = PrincipalScores(gram)(torch.ones(300, dtype=torch.float64))
    assert variance == pytest.approx(1 / 300)
    assert float(scores.mean()) == pytest.approx(1 / 300)


def test_hull_distances_are_lower_bounds() -> None:
    rows = gaussian(20, 60, dtype=torch.float64) + 3
    found = squared_hull_distances(rows @ rows.T)
    for i in range(20):
        others = torch.cat([rows[:i], rows[i + 1 :]])
        span = (others[1:] - others[0]).T
        away = rows[i] - others[0]
        nearest = torch.linalg.lstsq(span, away[:, None]).solution[:, 0]
        expected = float((away - span @ nearest).square().sum())
        assert float(found[i]) == pytest.approx(expected, rel=1e-5)
        assert float(found[i]) <= expected
    assert not squared_hull_distances(rows[:, :5] @ rows[:, :5].T).any()
