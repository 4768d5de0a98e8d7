"""A monitor in the optimizer: it sees every step, is saved with it, and names the bad row."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from holdfast import RobustStep, SelectFirstStep, bgmd
from holdfast.aggregators import Aggregator
from holdfast.errors import NonFiniteRowsError
from holdfast.geometry import DenseRows
from holdfast.monitor import Monitor, Suspect
from holdfast.optim import RobustOptimizer
from holdfast.robust_step import NoMemory, Step
from holdfast.selectors import TopNorm
from holdfast.sources import LayerGrams
from tests.optim.networks import batches, network, parameters_of, source_of
from tests.robust_step.steps import through_a_file

RULES: dict[str, Callable[[], Aggregator | Step | str]] = {
    "a rule that measures inner products": lambda: "radius-filter",
    "a rule that does not": lambda: "coordinate-median",
    "a wrapper": lambda: "clipping(n_bad=1) | mean",
    "a block": lambda: bgmd(units="gradient"),
    "select first": lambda: SelectFirstStep(
        "geometric-median", selector=TopNorm(fraction=0.3, tile=1), memory=NoMemory()
    ),
}


class Seen:
    """A monitor's `observe` that also keeps what it was given."""

    def __init__(self, monitor: Monitor) -> None:
        self.products: list[Tensor] = []
        self.rejected: list[Tensor] = []
        self._observe = monitor.observe
        monitor.observe = self  # type: ignore[assignment,method-assign]

    def __call__(self, products: Tensor, rejected: Tensor) -> None:
        self.products.append(products)
        self.rejected.append(rejected)
        self._observe(products, rejected)


def matrix_of(rows: DenseRows) -> Tensor:
    return torch.as_tensor(rows).double()


def with_a_bad_row(rows: DenseRows) -> DenseRows:
    rows.tensors[0][3] *= -100.0
    return rows


@pytest.mark.parametrize("make", RULES.values(), ids=RULES)
def test_it_observes_the_inner_products_of_whole_rows(make: Callable[[], Any]) -> None:
    model, monitor = network(), Monitor(5)
    seen = Seen(monitor)
    optimizer = RobustOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), make(), monitor=monitor
    )
    for x, y in batches(3):
        rows = source_of(model)(x, y)
        matrix = matrix_of(rows)
        optimizer.step(rows)
        torch.testing.assert_close(seen.products[-1], matrix @ matrix.T, rtol=1e-4, atol=1e-7)
        assert optimizer.result is not None
        assert torch.equal(seen.rejected[-1], optimizer.result.rejected)
    assert monitor.n_steps == 3


def test_it_does_not_change_the_training() -> None:
    found = []
    for monitor in (None, Monitor(5)):
        model = network()
        optimizer = RobustOptimizer(torch.optim.Adam(model.parameters()), monitor=monitor)
        for x, y in batches(4):
            optimizer.zero_grad()
            optimizer.step(source_of(model)(x, y))
        found.append(parameters_of(model))
    assert torch.equal(*found)


def test_the_bad_row_is_named() -> None:
    model = network()
    found: list[Suspect] = []
    monitor = Monitor(5, on_suspect=found.append)
    optimizer = RobustOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), monitor=monitor)
    for x, y in batches(15):
        optimizer.zero_grad()
        optimizer.step(with_a_bad_row(source_of(model)(x, y)))
    assert [suspect.row for suspect in found] == [3]
    assert monitor.counts.tolist() == [0, 0, 0, 15, 0]


def test_it_resumes_with_the_optimizer() -> None:
    model = network()
    monitors = [Monitor(5), Monitor(5)]
    first, second = (
        RobustOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), monitor=monitor)
        for monitor in monitors
    )
    for x, y in batches(12):
        first.step(with_a_bad_row(source_of(model)(x, y)))
    second.load_state_dict(through_a_file(first.state_dict()))
    assert monitors[1].suspects() == monitors[0].suspects() != []
    assert torch.equal(monitors[1].counts, monitors[0].counts)


def test_a_state_without_a_monitor_leaves_it_as_it_is_and_one_that_does_not_fit_all() -> None:
    model, other = network(), network()
    plain = RobustOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    watched = RobustOptimizer(torch.optim.SGD(other.parameters(), lr=0.1), monitor=Monitor(5))
    assert watched.monitor is not None
    for x, y in batches(2):
        watched.step(source_of(other)(x, y))
    watched.load_state_dict(plain.state_dict())
    assert watched.monitor.n_steps == 2
    plain.load_state_dict(watched.state_dict())

    state = RobustOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.5), monitor=Monitor(4)
    ).state_dict()
    with pytest.raises(ValueError, match=r"`state` must have 5 rows and half a window of 100"):
        watched.load_state_dict(state)
    state = plain.state_dict() | {"param_groups": []}
    state["holdfast"]["monitor"] = Monitor(5).state_dict()
    with pytest.raises(ValueError, match="parameter group"):
        watched.load_state_dict(state)
    assert watched.monitor.n_steps == 2
    assert watched.param_groups[0]["lr"] == 0.1


def test_rows_without_weight_are_not_held_against_their_owner() -> None:
    model, monitor = network(), Monitor(5)
    optimizer = RobustOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), "geometric-median", monitor=monitor
    )
    for x, y in batches(3):
        weights = torch.tensor([1.0, 0.0, 1.0, 1.0, 1.0])
        optimizer.step(source_of(model)(x, y), row_weights=weights)
    assert monitor.counts.tolist() == [0] * 5


def test_rows_that_are_never_formed_are_watched_as_well() -> None:
    model, monitor = network(), Monitor(20)
    optimizer = RobustOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), "geometric-median", monitor=monitor
    )
    for x, y in batches(2):
        optimizer.step(LayerGrams(model, cross_entropy)(x, y))
    assert monitor.n_steps == 2
    assert bool(torch.isfinite(monitor.ratios).all())


def test_a_step_that_fails_is_not_observed() -> None:
    model, monitor = network(), Monitor(5)
    optimizer = RobustOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), monitor=monitor)
    rows = source_of(model)(*next(batches(1)))
    rows.tensors[0][:4] = torch.nan
    with pytest.raises(NonFiniteRowsError):
        optimizer.step(rows)
    assert monitor.n_steps == 0


def test_bad_input() -> None:
    model = network()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match=r"`monitor` must be a Monitor, got str\."):
        RobustOptimizer(inner, RobustStep("mean"), monitor="yes")  # type: ignore[arg-type]
    optimizer = RobustOptimizer(inner, monitor=Monitor(4))
    with pytest.raises(ValueError, match=r"`rows` must have the 4 rows that the monitor watches"):
        optimizer.step(source_of(model)(*next(batches(1))))
