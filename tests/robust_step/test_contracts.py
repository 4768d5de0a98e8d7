"""What every step promises: both orders, with every selector, memory and rule."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from holdfast import Layout
from holdfast.aggregators import Aggregator, CoordinateMedian, GeometricMedian, GramAggregator, Mean
from holdfast.geometry import DenseRows
from holdfast.robust_step import MeanMemory, NoMemory, RowMemory
from holdfast.seeds import stream
from holdfast.selectors import Everything, NormSampling, Selector, TopNorm, Uniform
from holdfast.testing._rule_subject import HOSTILE
from tests.aggregators.cases import CASES, Case
from tests.loops import naming
from tests.oracle import robust_step as oracle
from tests.robust_step.steps import (
    ORDERS,
    SELECTORS,
    D,
    MakeStep,
    N,
    every_order,
    every_selector,
    median_step,
    run,
    same_state,
    select_first,
    through_a_file,
)
from tests.samples import gaussian

DELIVER = ORDERS["deliver, parameter"]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("order", [DELIVER, select_first(MeanMemory())], ids=["deliver", "select"])
def test_with_everything_the_step_is_the_rule(case: Case, order: MakeStep) -> None:
    """With `Everything`, and with a block that happens to be whole, bit for bit."""
    rows = case.rows(N, 23)
    extras = case.extras(rows)
    draws = extras.pop("generator", None) is not None
    for selector in (Everything(), TopNorm(fraction=1.0, tile=16)):
        step = order(case.rule, selector)
        step.generator = stream(0, "shuffled")
        for _ in range(1 if draws else 3):
            result = step(rows, lr=0.1, **extras)
        expected = case.rule.aggregate(rows, **case.extras(rows))
        assert result.direction.equal(expected.vector)
        assert result.rejected.equal(expected.rejected)
        assert step.state_dict()["carried"] is None
        assert (result.residual, result.carried_norm) == (0.0, 0.0)
        assert result.block.is_whole


@every_order
@every_selector
def test_the_direction_is_zero_off_the_block(order: MakeStep, selector: Selector) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for result in run(median_step(order, selector), 4, dtype):
            assert result.direction.dtype == dtype
            assert oracle.remainder(result.direction, result.block.columns).count_nonzero() == 0
            assert result.direction.count_nonzero() > 0
            assert result.weights is not None
            assert float(result.weights.sum()) == pytest.approx(1.0)
            assert 0.0 <= result.residual <= 1.0
            assert not bool(result.rejected.any())


@every_order
@every_selector
def test_a_resumed_step_goes_on_bit_for_bit(order: MakeStep, selector: Selector) -> None:
    whole, first = median_step(order, selector), median_step(order, selector)
    expected = run(whole, 8)
    run(first, 4)
    saved = through_a_file(first.state_dict())
    run(first, 1)  # what happens afterwards does not reach the saved state
    second = median_step(order, selector)
    second.load_state_dict(saved)
    assert second.n_steps == 4
    for seed in range(4, 8):
        rows = gaussian(N, D, seed, torch.float64)
        found = second(rows, lr=0.1 + 0.01 * seed)
        assert found.direction.equal(expected[seed].direction)
    assert same_state(second.state_dict(), whole.state_dict())


@every_order
@every_selector
def test_input_and_earlier_results_are_left_alone(order: MakeStep, selector: Selector) -> None:
    step, again = median_step(order, selector), median_step(order, selector)
    rates = torch.full((D,), 0.1)
    given = [gaussian(N, D, seed) for seed in range(4)]
    copies = [rows.clone() for rows in given]
    made = [(step(rows, lr=rates).direction, step.state_dict()) for rows in given]
    for rows, copy, (direction, state) in zip(given, copies, made, strict=True):
        assert rows.equal(copy)
        assert again(copy, lr=rates).direction.equal(direction)
        assert same_state(again.state_dict(), state)
    assert rates.equal(torch.full((D,), 0.1))


class Refuses(GramAggregator):
    """A rule that fails after everything before it has happened."""

    name = "refuses"

    @property
    def n_needed(self) -> int:
        return 1

    def _n_resisted(self, n: int) -> int:
        return 0

    def _solve(self, gram: Any, context: Any) -> Any:
        raise RuntimeError("no")


@every_order
@every_selector
def test_a_step_that_fails_did_not_happen(order: MakeStep, selector: Selector) -> None:
    step = median_step(order, selector)
    run(step, 3)
    before = step.state_dict()
    rows = gaussian(N, D, 50, torch.float64)
    lost = rows.clone()
    lost[:8, 3] = float("nan")
    attempts: list[Callable[[], Any]] = [
        lambda: step(lost, lr=0.1),
        lambda: step(rows, lr=-0.1),
        lambda: step(rows, lr=float("nan")),
        lambda: step(rows, lr=torch.ones(D + 1)),
        lambda: step(rows, lr=0.1, reference=torch.ones(D)),
        lambda: step("rows", lr=0.1),  # type: ignore[arg-type]
    ]
    for attempt in attempts:
        with pytest.raises(ValueError, match=r"must|is not accepted by"):
            attempt()
    step.rule = Refuses()
    with pytest.raises(RuntimeError, match="no"):
        step(rows, lr=0.1)
    assert same_state(step.state_dict(), before)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_rule_works_with_a_block(case: Case) -> None:
    selectors = (NormSampling(fraction=0.3, tile=4), TopNorm(fraction=0.3, tile=1))
    orders = (DELIVER, select_first(MeanMemory()), select_first(RowMemory()))
    has_lost = case.rule.n_resisted(N) >= 1 and "majority" not in case.text
    for order, selector in ((order, selector) for order in orders for selector in selectors):
        step = order(case.rule, selector)
        for seed in range(3):
            rows = case.rows(N, 60, seed)
            extras = case.extras(rows)
            extras.pop("generator", None)
            if has_lost:
                rows[2] = float("nan")
            with naming(step):
                result = step(rows, lr=0.1, **extras)
                assert bool(torch.isfinite(result.direction).all())
                assert result.direction.count_nonzero() > 0
                assert oracle.remainder(result.direction, result.block.columns).count_nonzero() == 0
                assert result.carried_norm < 100


@every_order
@pytest.mark.parametrize("rule", [GeometricMedian(), CoordinateMedian(), Mean()], ids=repr)
def test_a_row_that_is_not_finite_off_the_block_is_rejected(
    order: MakeStep, rule: Aggregator
) -> None:
    step = order(rule, NormSampling(count=2, tile=1))
    for seed in range(3):
        rows = gaussian(N, D, seed)
        rows[3, 100 + seed] = float("inf")
        rows[7, 50 + seed] = float("nan")
        result = step(rows, lr=0.1)
        assert torch.nonzero(result.rejected)[:, 0].tolist() == [3, 7]
        assert result.carried_norm < 100


@pytest.mark.parametrize("selector", SELECTORS, ids=repr)
def test_bad_rows_of_any_kind_are_survived(selector: Selector) -> None:
    for kind, corrupt in HOSTILE.items():
        step = DELIVER("geometric-median", selector)
        for seed in range(5):
            rows = gaussian(N, D, seed)
            rows[:6] = corrupt(rows[:6])
            with naming(kind):
                result = step(rows, lr=0.1)
                assert float(result.direction.norm()) < 100
                assert result.carried_norm < 10
                if kind in ("nan", "inf", "one nan", "minus inf"):
                    assert result.rejected.tolist() == [True] * 6 + [False] * 9


@pytest.mark.parametrize("order", [DELIVER, select_first(RowMemory())], ids=["deliver", "select"])
def test_lists_of_parameters_equal_a_matrix_with_their_layout(order: MakeStep) -> None:
    layout = Layout(nn.Sequential(nn.Linear(9, 20), nn.Linear(20, 2)))
    for selector in (Uniform(fraction=0.2, tile=16), TopNorm(count=2, tile="parameter")):
        matrix, lists = order("geometric-median", selector), order("geometric-median", selector)
        for seed in range(4):
            rows = gaussian(N, layout.d, seed)
            parts = torch.split(rows, list(layout.sizes), 1)
            shaped = [p.reshape(N, *shape) for p, shape in zip(parts, layout.shapes, strict=True)]
            a, b = matrix(layout.rows(rows), lr=0.1), lists(shaped, lr=0.1)
            assert a.block.columns.equal(b.block.columns)
            torch.testing.assert_close(a.direction, b.direction, rtol=1e-4, atol=1e-5)
    starts = torch.tensor([0, *layout.sizes]).cumsum(0)
    chosen = torch.bucketize(a.block.columns, starts, right=True) - 1
    for parameter in chosen.unique().tolist():  # whole parameters
        assert int((chosen == parameter).sum()) == layout.sizes[parameter]


def test_row_weights_reach_the_rule() -> None:
    rows, weights = gaussian(5, 200), torch.tensor([0.0, 1.0, 1.0, 1.0, 5.0])
    for order in (DELIVER, select_first(NoMemory())):
        rule = "sketched(fraction=0.3) | geometric-median" if order is DELIVER else "medoid"
        result = order(rule, TopNorm(fraction=0.3))(rows, lr=0.1, row_weights=weights)
        assert result.weights is not None
        assert result.weights.tolist() == pytest.approx([0, 0, 0, 0, 1])


@every_order
def test_backward_adds_the_direction_to_the_gradients(order: MakeStep) -> None:
    model = nn.Linear(5, 4)
    layout = Layout(model)
    step, twin = (median_step(order, TopNorm(fraction=0.5, tile=1)) for _ in range(2))
    rows = layout.rows(gaussian(N, layout.d))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    step.backward(rows, lr=0.1)
    found = layout.flatten([p.grad for p in model.parameters() if p.grad is not None])
    assert found.equal(1.0 + twin(rows, lr=0.1).direction)
    with pytest.raises(ValueError, match=r"^`rows` must have a layout .*, got DenseRows\.$"):
        step.backward(DenseRows(gaussian(3, 4)), lr=0.1)
