"""A round: all or nothing, the same for everybody, whatever a minority says."""

import numpy as np
import pytest
import torch
from torch import Tensor

from holdfast.aggregators import rules
from holdfast.exchange import AgreedBlock, OuterStep, Payload, Round, Worker, WorkerMemory
from holdfast.seeds import stream
from tests.exchange.cases import Simulation, layout_of

RULE = "blockwise(tile=4) | geometric-median"


def simulation(
    n: int = 5, *, rule: str = RULE, send: float = 0.25, report_every: int | None = 1
) -> Simulation:
    layout = layout_of()
    tiling = WorkerMemory(layout, tile=4).tiling
    return Simulation(layout, n, AgreedBlock(tiling, send=send, report_every=report_every), rule)


def updates(n: int, d: int, *path: int) -> Tensor:
    return torch.randn(n, d, generator=stream(0, "updates", *path)) + 1.0


def test_the_rule_meets_the_tiles_as_they_were_cut() -> None:
    """Blockwise over the block is the rule applied to the columns of each tile."""
    this = simulation()
    d = this.layout.d
    for t in range(12):
        memories = torch.stack([m.vector for m in this.memories]) + updates(5, d, t)
        block, direction = this.round(updates(5, d, t))
        expected = torch.cat(
            [
                rules.parse("geometric-median")(memories[:, block.tiling.columns(tile[None])])
                for tile in block.tiles
            ]
        )
        torch.testing.assert_close(direction, expected, rtol=1e-3, atol=1e-3)


def test_everything_sent_in_every_round_is_the_rule() -> None:
    this = simulation(rule="geometric-median", send=1.0)
    given = updates(5, this.layout.d)
    _, direction = this.round(given)
    assert torch.equal(direction, rules.parse("geometric-median")(given))
    assert torch.equal(this.layout.values(), -direction)
    assert all(memory.vector.count_nonzero() == 0 for memory in this.memories)


@pytest.mark.parametrize("report_every", [1, 3, None])
@pytest.mark.parametrize("size", [torch.nan, torch.inf, 1e30, -1e6])
def test_a_minority_of_liars_is_outvoted(size: float, report_every: int | None) -> None:
    """In reports and in values, also from the first round on: breakdown point one half."""
    honest, attacked = (simulation(7, report_every=report_every) for _ in range(2))
    d, n_tiles = honest.layout.d, honest.agreed.tiling.n_tiles
    for t in range(24):
        given = updates(7, d, t)
        honest.round(given)
        attacked.round(
            given,
            reports={i: torch.full((n_tiles,), size).bfloat16() for i in range(3)},
            values={i: torch.full((d,), size) for i in range(3)},
        )
    # Updates are around 1. Some are still in memory; three rows at infinity shift a median.
    for run in (honest, attacked):
        moved = -run.layout.values()
        assert bool(((moved > 3) & (moved < 60)).all())


def test_workers_miss_rounds_join_and_leave() -> None:
    this = simulation(5)
    d = this.layout.d
    for t in range(30):
        present = [i for i in range(5) if (t + i) % 3] if t < 20 else [1, 2, 3]
        before = [memory.vector.clone() for memory in this.memories]
        block, _ = this.round(updates(5, d, t), present=present)
        for i, memory in enumerate(this.memories):
            grown = before[i] + updates(5, d, t)[i]
            if i in present:
                grown[block.columns] = 0.0
            assert torch.equal(memory.vector, grown)
    assert this.agreed.round == 30


def test_a_failed_round_changes_nothing_that_is_shared() -> None:
    this = simulation()
    this.round(updates(5, this.layout.d, 0))
    waits, x = this.agreed.waits.clone(), this.layout.values()
    memories = [memory.vector.clone() for memory in this.memories]
    failing = Round(this.agreed, "krum(n_bad=2)")
    for i in range(3):
        failing.report(i, this.memories[i].report())
    block = failing.agree()
    for i in range(3):
        failing.receive(i, this.memories[i].payload(block))
    with pytest.raises(ValueError, match="`rows` must have at least 7 rows"):
        failing.aggregate()
    with pytest.raises(ValueError, match="`round` must have a direction before it is closed"):
        failing.close()
    assert torch.equal(this.agreed.waits, waits)
    assert torch.equal(this.layout.values(), x)
    kept = [memory.vector for memory in this.memories]
    assert all(torch.equal(a, b) for a, b in zip(kept, memories, strict=True))
    this.round(updates(5, this.layout.d, 1))  # goes on


def test_the_order_of_arrival_does_not_matter() -> None:
    this = simulation()
    for memory, update in zip(this.memories, updates(5, this.layout.d), strict=True):
        memory.add(update)
    found = []
    for order in (range(5), [3, 1, 4, 0, 2]):
        one = Round(this.agreed, RULE)
        for i in order:
            one.report(i, this.memories[i].report())
        block = one.agree()
        for i in reversed(order):
            one.receive(i, this.memories[i].payload(block))
        found.append(one.aggregate({i: 1.0 + (i == 0) for i in range(5)}).vector)
    assert torch.equal(found[0], found[1])


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (list(reversed(range(12))), list(range(12))),
        (["b", "a", 10, np.int64(9)], [9, 10, "a", "b"]),
    ],
)
def test_rows_are_in_the_order_of_numbers_and_then_of_names(
    names: list[Worker], expected: list[Worker]
) -> None:
    this = simulation(len(names))
    one = Round(this.agreed, "mean")
    for i, (name, memory) in enumerate(zip(names, this.memories, strict=True)):
        memory.add(torch.full((this.layout.d,), float(i)))
        one.report(name, memory.report())
    block = one.agree()
    for name, memory in zip(names, this.memories, strict=True):
        one.receive(name, memory.payload(block))
    assert one.workers == expected
    sent = [names.index(name) for name in one.workers]
    assert one.rows().matrix()[:, 0].tolist() == sent


def test_row_weights_count() -> None:
    this = simulation(rule="mean", send=1.0)
    for i, memory in enumerate(this.memories):
        memory.add(torch.full((this.layout.d,), float(i)))
    one = Round(this.agreed, "mean")
    for i, memory in enumerate(this.memories):
        one.report(i, memory.report())
    block = one.agree()
    for i, memory in enumerate(this.memories):
        one.receive(i, memory.payload(block))
    weights = {0: 0.0, 1: 3.0, 2: 0.0, 3: 1.0, 4: 0.0}
    torch.testing.assert_close(one.aggregate(weights).vector, torch.full((58,), 1.5))


def test_bad_input() -> None:
    this = simulation()
    one = Round(this.agreed, RULE)
    with pytest.raises(ValueError, match=r"`report` must have shape \(16,\), one norm per tile"):
        one.report(0, torch.ones(3))
    with pytest.raises(ValueError, match="`reports` must come from at least one worker"):
        one.agree()
    with pytest.raises(ValueError, match="`payload` must come after the block is agreed on"):
        one.receive(0, Payload(torch.ones(4)))
    for i in range(3):
        one.report(i, torch.ones(16))
    with pytest.raises(
        ValueError, match="`worker` must send one message of a kind per round, got 1 again"
    ):
        one.report(1, torch.ones(16))
    with pytest.raises(ValueError, match="`number` must be 0, the round that is open, got 4"):
        one.report(3, torch.ones(16), number=4)
    block = one.agree()
    with pytest.raises(ValueError, match="`report` must come before the block is agreed on"):
        one.report(4, torch.ones(16))
    with pytest.raises(ValueError, match=r"`payload` must have shape \(\d+,\), one value per"):
        one.receive(0, Payload(torch.ones(3)))
    with pytest.raises(ValueError, match="`payload` must have one scale for each of the 4 tiles"):
        one.receive(0, Payload(torch.ones(len(block)), torch.ones(2)))
    with pytest.raises(ValueError, match="`payloads` must come from at least one worker"):
        one.aggregate()
    with pytest.raises(ValueError, match=r"`direction` must have shape"):
        OuterStep(this.layout)(block, torch.ones(1))
