"""Delivery after the optimizer: it sees the whole aggregate, and a block of its update is applied.

The twin is the same optimizer without a block, given the same aggregates at the same parameters.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer, lr_scheduler

from holdfast import Layout, bgmd
from holdfast.aggregators import GeometricMedian
from holdfast.optim import RobustOptimizer
from holdfast.selectors import Cyclic, Everything, NormSampling, Selector, TopNorm, Uniform
from tests.optim.networks import (
    BLOCK,
    OPTIMIZERS,
    MakeOptimizer,
    batches,
    delivering,
    every_optimizer,
    network,
    parameters_of,
    pending_of,
    source_of,
    train,
)
from tests.robust_step.steps import same_state
from tests.samples import gaussian

SELECTORS: list[Selector] = [
    BLOCK,
    TopNorm(fraction=0.3, tile=4),
    NormSampling(fraction=0.3, tile=1),
    Uniform(fraction=0.3, tile=4),
    Cyclic(fraction=0.3, tile=1),
]


@every_optimizer
@pytest.mark.parametrize("whole", [Everything(), TopNorm(fraction=1.0, tile=1)], ids=repr)
def test_with_a_block_of_everything_it_is_the_plain_path_bit_for_bit(
    make: MakeOptimizer, whole: Selector
) -> None:
    model, twin = network(), network()
    optimizer = delivering(model, make, whole)
    plain = RobustOptimizer(make(list(twin.parameters())), "geometric-median")
    # With updates as large as the parameters, a difference added back would show in the last bit.
    for group in (*optimizer.param_groups, *plain.param_groups):
        group["lr"] = 30 * group["lr"]
    for _ in zip(train(model, optimizer, 4), train(twin, plain, 4), strict=True):
        assert parameters_of(model).equal(parameters_of(twin))
    assert optimizer.state_dict()["holdfast"]["pending"] is None


@every_optimizer
def test_the_optimizer_sees_the_aggregates_and_nothing_of_its_updates_is_lost(
    make: MakeOptimizer,
) -> None:
    """Moments equal those of a twin with the same aggregates, to the bit.

    What was applied and what is pending add up to the updates of the twin.
    """
    model, twin = network(), network()
    optimizer, plain = delivering(model, make), make(list(twin.parameters()))
    layout, rule, start = Layout(twin), GeometricMedian(), parameters_of(model)
    updates = torch.zeros_like(start, dtype=torch.float64)
    for rows in train(model, optimizer, 5):
        before = parameters_of(twin)
        plain.zero_grad()
        layout.write_gradient(rule(rows))
        plain.step()
        updates += parameters_of(twin).double() - before.double()
        applied = parameters_of(model).double() - start.double()
        torch.testing.assert_close(applied + pending_of(optimizer), updates, rtol=0, atol=1e-6)
        layout.write_values(parameters_of(model))  # where the next update is computed
        moments = optimizer.optimizer.state_dict()["state"]
        for key, expected in plain.state_dict()["state"].items():
            assert same_state(moments[key], expected)


@pytest.mark.parametrize("selector", SELECTORS, ids=repr)
def test_only_the_block_moves(selector: Selector) -> None:
    """Off the block the parameters keep their bits; on it nothing stays pending."""
    model = network()
    optimizer = delivering(model, OPTIMIZERS["Adam"], selector)
    before = parameters_of(model)
    for t, rows in enumerate(train(model, optimizer, 6)):
        result, pending, after = optimizer.result, pending_of(optimizer), parameters_of(model)
        assert result is not None
        on = torch.zeros(rows.d, dtype=torch.bool).index_fill_(0, result.block.columns, True)
        assert after[~on].equal(before[~on])
        assert pending[on].count_nonzero() == 0
        assert pending[~on].count_nonzero() > 0
        assert not after[on].equal(before[on])
        assert result.carried_norm == pytest.approx(float(pending.norm()))
        assert 0.0 < result.residual < 1.0
        assert optimizer.robust_step.n_steps == t + 1
        before = after


def test_the_largest_entries_of_what_is_pending_are_applied() -> None:
    """With SGD, p <- p - lr * aggregate: the block holds the largest |p|."""
    model = network()
    optimizer = delivering(model, OPTIMIZERS["SGD"], TopNorm(count=20, tile=1))
    pending = torch.zeros(parameters_of(model).numel())
    for _ in train(model, optimizer, 5):
        assert optimizer.result is not None
        total = pending - 0.1 * optimizer.result.aggregate.vector
        expected = total.abs().topk(20).indices.sort().values
        assert optimizer.result.block.columns.equal(expected)
        pending = pending_of(optimizer)


def test_blocks_of_a_cycle_follow_each_other() -> None:
    model = network()
    d = parameters_of(model).numel()
    optimizer, seen = delivering(model, OPTIMIZERS["SGD"], Cyclic(count=d // 4 + 1, tile=1)), []
    for _ in train(model, optimizer, 4):
        assert optimizer.result is not None
        seen += optimizer.result.block.columns.tolist()
    assert seen == list(range(d))


SCHEDULERS: dict[str, Callable[[Optimizer], Any]] = {
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, gamma=0.5),
    "warm-up from zero": lambda o: lr_scheduler.LambdaLR(o, lambda t: min(1.0, t / 3)),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(
        o, max_lr=0.1, total_steps=10, cycle_momentum=False
    ),
}


@pytest.mark.parametrize("make", SCHEDULERS.values(), ids=SCHEDULERS)
def test_a_changed_rate_leaves_what_is_pending_alone(make: Callable[[Optimizer], Any]) -> None:
    """Rows of ones move every parameter by the sum of the rates, once all is delivered."""
    model = network()
    optimizer, layout = delivering(model, OPTIMIZERS["SGD"]), Layout(model)
    scheduler, start, rates = make(optimizer), parameters_of(model), 0.0
    for _ in range(6):
        rates += optimizer.param_groups[0]["lr"]
        optimizer.zero_grad()
        optimizer.step(layout.rows(torch.ones(5, layout.d)))
        scheduler.step()
        owed = start - parameters_of(model) - pending_of(optimizer)
        torch.testing.assert_close(owed, torch.full_like(owed, rates), rtol=1e-4, atol=1e-6)


def test_parameters_outside_of_the_layout_get_their_plain_step() -> None:
    model, other = network(), nn.Linear(3, 2)
    inner = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)
    optimizer = RobustOptimizer(inner, bgmd(fraction=0.3))
    before = parameters_of(other)
    optimizer.backward(source_of(model)(*next(batches(1))))
    other(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    torch.testing.assert_close(parameters_of(other), before - 0.1)
    pending = optimizer.state_dict()["holdfast"]["pending"]
    assert pending.shape == parameters_of(model).shape


def test_a_frozen_group_is_never_moved() -> None:
    """Rates of zero, as of the second group here, make updates of zero."""
    model = network()
    optimizer, start = delivering(model, OPTIMIZERS["two groups"]), parameters_of(model)
    for _ in train(model, optimizer, 6):
        assert parameters_of(model)[48:].equal(start[48:])
        assert pending_of(optimizer)[48:].count_nonzero() == 0
    assert not parameters_of(model)[:48].equal(start[:48])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_other_dtypes(dtype: torch.dtype) -> None:
    """What is pending has at least float32, and only the rounding of parameters is lost."""
    model = network(dtype)
    optimizer, layout = delivering(model, OPTIMIZERS["SGD"]), Layout(model)
    start = before = layout.values()
    updates = torch.zeros_like(start)
    for seed in range(8):
        optimizer.zero_grad()
        optimizer.step(layout.rows(gaussian(5, layout.d, seed, dtype)))
        assert optimizer.result is not None
        after, pending = layout.values(), pending_of(optimizer)
        off = torch.ones(layout.d, dtype=torch.bool)
        off[optimizer.result.block.columns] = False
        assert pending.dtype == (torch.float64 if dtype is torch.float64 else torch.float32)
        assert after[off].equal(before[off])
        updates = updates - 0.1 * optimizer.result.aggregate.vector.to(pending)
        error = (after - start + pending - updates).abs().max()
        assert float(error) < 8 * 4 * torch.finfo(dtype).eps
        before = after


def test_mixed_dtypes_keep_the_bits_of_the_widest() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2).double())
    layout = Layout(model)
    optimizer = delivering(model, OPTIMIZERS["SGD"], TopNorm(count=1, tile=1))
    before = layout.values()
    optimizer.step(layout.rows(gaussian(5, layout.d)))
    assert before.dtype == torch.float64
    assert int((layout.values() != before).sum()) == 1


def test_bad_rows_reach_neither_moments_nor_what_is_pending() -> None:
    """As large as they like, in every step: the run stays near the one with honest rows."""
    ends = []
    for size in (1.0, -1e20):
        model = network()
        layout = Layout(model)
        optimizer = delivering(model, OPTIMIZERS["Adam"], rule="radius-filter")
        for seed in range(30):
            rows = 1 + 0.1 * gaussian(9, layout.d, seed)
            rows[:4] *= size
            optimizer.zero_grad()
            optimizer.step(layout.rows(rows))
        ends.append(parameters_of(model) + pending_of(optimizer))
    torch.testing.assert_close(ends[0], ends[1], rtol=0, atol=0.02)


@torch.no_grad()
def loss_of(model: nn.Module) -> float:
    x, y = next(batches(1))
    return float(cross_entropy(model(x), y))


def test_a_network_learns_as_with_the_whole_update() -> None:
    losses = []
    for selector in (Everything(), TopNorm(fraction=0.2, tile=1)):
        model = network()
        optimizer = delivering(model, OPTIMIZERS["SGD with momentum"], selector)
        for _ in range(60):
            list(train(model, optimizer, 1))
        losses.append(loss_of(model))
    assert losses[1] < losses[0] + 0.2 < loss_of(network())
