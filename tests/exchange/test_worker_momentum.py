"""Momentum of rows with a persistent identity."""

import pytest
import torch

from holdfast import Layout
from holdfast.aggregators import CoordinateMedian, CovarianceFilter, GeometricMedian
from holdfast.exchange import WorkerMomentum
from holdfast.geometry import DenseRows
from holdfast.seeds import stream
from tests.samples import gaussian


def matrix(rows: DenseRows) -> torch.Tensor:
    return torch.cat([chunk for _, chunk in rows.chunks(10**6)], dim=1)


def test_it_is_the_exponential_average_from_the_first_row() -> None:
    momentum = WorkerMomentum(beta=0.8)
    steps = [gaussian(4, 7, seed) for seed in range(5)]
    expected = steps[0]
    for t, rows in enumerate(steps):
        expected = rows if t == 0 else 0.8 * expected + 0.2 * rows
        torch.testing.assert_close(matrix(momentum(rows)), expected)


def test_rows_are_not_changed_and_the_layout_is_kept() -> None:
    layout = Layout(torch.nn.Linear(3, 2))
    rows = gaussian(4, layout.d)
    before = rows.clone()
    momentum = WorkerMomentum(beta=0.5)
    for _ in range(2):
        assert momentum(layout.rows(rows)).layout is layout
    assert torch.equal(rows, before)


def test_a_row_that_is_not_finite_is_returned_as_nan_and_keeps_its_momentum() -> None:
    momentum = WorkerMomentum(beta=0.5)
    first = gaussian(3, 2, 0)
    first[0, 1] = torch.nan
    found = matrix(momentum(first))
    assert bool(found[0].isnan().all())
    assert torch.equal(found[1:], first[1:])
    second = gaussian(3, 2, 1)
    second[2, 0] = torch.inf
    found = matrix(momentum(second))
    assert torch.equal(found[0], second[0]), "it starts with the first finite row"
    assert bool(found[2].isnan().all())
    third = gaussian(3, 2, 2)
    torch.testing.assert_close(matrix(momentum(third))[2], 0.5 * first[2] + 0.5 * third[2])


def test_resumed_is_uninterrupted() -> None:
    momentum, again = WorkerMomentum(), WorkerMomentum()
    momentum(gaussian(4, 6, 0))
    again.load_state_dict(momentum.state_dict())
    for seed in (1, 2):
        assert torch.equal(
            matrix(momentum(gaussian(4, 6, seed))), matrix(again(gaussian(4, 6, seed)))
        )


def test_half_precision_rows_are_averaged_in_float32() -> None:
    momentum = WorkerMomentum(beta=0.999)
    rows = torch.ones(3, 2, dtype=torch.bfloat16)
    momentum(rows)
    assert matrix(momentum(2 * rows))[0, 0].item() == pytest.approx(1.001)


def test_it_uncovers_an_attacker_within_the_spread() -> None:
    """4 of 12 workers lie by one standard deviation: momentum shrinks the spread, not the lie."""
    truth = gaussian(1, 200, 99) / 200**0.5

    def errors(momentum: WorkerMomentum | None) -> list[float]:
        rule, found = CovarianceFilter(), []
        for t in range(40):
            rows = truth + torch.randn(12, 200, generator=stream(0, t))
            rows[:4] = truth - 1.0
            seen = rows if momentum is None else momentum(rows)
            found.append(float((rule(seen) - truth).norm()))
        return found[-10:]

    assert max(errors(WorkerMomentum(beta=0.9))) < 0.5 * min(errors(None))


@pytest.mark.parametrize("rule", [GeometricMedian(), CoordinateMedian()])
def test_any_rule_takes_its_rows(rule: GeometricMedian | CoordinateMedian) -> None:
    assert rule(WorkerMomentum()(gaussian(5, 8))).shape == (8,)


def test_bad_input() -> None:
    with pytest.raises(ValueError, match=r"`beta` must be in \[0, 1\), got 1"):
        WorkerMomentum(beta=1)
    momentum = WorkerMomentum()
    momentum(gaussian(4, 6))
    message = r"`rows` must have the shape of the momentum, \(4, 6\), got \(5, 6\)\."
    with pytest.raises(ValueError, match=message):
        momentum(gaussian(5, 6))
    message = r"`state` must be a mapping with the key momentum, got list\."
    with pytest.raises(ValueError, match=message):
        momentum.load_state_dict([])  # type: ignore[arg-type]
    message = r"`state\['momentum'\]` must be None or a floating tensor \[n, d\], got int\."
    with pytest.raises(ValueError, match=message):
        momentum.load_state_dict({"momentum": 3})


def test_momentum_of_the_largest_numbers_stays_finite() -> None:
    momentum = WorkerMomentum(beta=0.5)
    for sign in (1, -1, 1):
        rows = momentum(torch.full((3, 2), sign * 3e38))
    assert bool(rows.finite().all())
