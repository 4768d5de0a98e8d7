"""The covariance filter that stops early: the weights of all of its steps."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from holdfast.aggregators import CovarianceFilter
from holdfast.geometry import DenseRows
from tests.oracle import rules as oracle
from tests.samples import gaussian

SCENES: dict[str, Callable[[Tensor], Tensor]] = {
    "clean": lambda rows: rows + 1,
    "attacked": lambda rows: torch.cat([-100 * rows[: len(rows) // 5], rows[len(rows) // 5 :]]),
    "of many lengths": lambda rows: rows * torch.linspace(0.2, 5.0, len(rows))[:, None],
    "one cluster": lambda rows: torch.cat([rows[: len(rows) // 3] + 1, rows[len(rows) // 3 :]]),
    "few columns": lambda rows: rows[:, :7],
    "each row twice": lambda rows: rows[: len(rows) // 2].repeat_interleave(2, dim=0),
}


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("n", [6, 21, 64, 260])
def test_stopping_early_changes_nothing(n: int, scene: str) -> None:
    rows = SCENES[scene](gaussian(n, 3000, dtype=torch.float64))
    n = len(rows)
    products = DenseRows(rows).gram().products[:n, :n]
    ones = torch.ones_like(products[0])
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    for n_bad in ((n - 1) // 2, n // 5):
        weights = CovarianceFilter(n_bad=n_bad).aggregate(rows).weights
        expected = oracle.covariance_filter_weights(products, ones, n_bad)
        # Over hundreds of steps the rule amplifies rounding: by as much as another order of rows
        # changes it, the results may differ.
        reordered = oracle.covariance_filter_weights(products[order][:, order], ones, n_bad)
        blur = float((reordered - expected[order]).abs().max())
        torch.testing.assert_close(weights, expected, rtol=1e-6, atol=1e-9 + 100 * blur)


def test_row_weights_count_as_numbers_of_rows() -> None:
    rows = gaussian(40, 3000, dtype=torch.float64)
    eta = torch.linspace(0.5, 1.5, 40, dtype=torch.float64)
    weights = CovarianceFilter().aggregate(rows, row_weights=eta).weights
    expected = oracle.covariance_filter_weights(rows @ rows.T, 40 * eta / eta.sum(), 19)
    torch.testing.assert_close(weights, expected, rtol=1e-6, atol=1e-9)


def test_similar_rows_take_few_of_the_steps() -> None:
    """The definition alone takes about a hundred."""
    assert CovarianceFilter().aggregate(gaussian(128, 50_000)).steps < 30
