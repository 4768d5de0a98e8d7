"""A worker's memory: nothing is lost, garbage is left out, states are exact."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import Layout
from holdfast.exchange import Wire, WorkerMemory
from holdfast.exchange._worker_memory import CACHED
from holdfast.geometry import Block
from holdfast.seeds import stream
from tests.exchange.cases import layout_of

WIRES: list[Wire] = ["float32", "bfloat16", "int8"]


def block_of(memory: WorkerMemory, *tiles: int) -> Block:
    return Block(memory.tiling, torch.tensor(tiles))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    wire=st.sampled_from(WIRES),
    tile=st.integers(1, 40),
    size=st.floats(-20, 20),
)
def test_what_is_sent_and_what_is_kept_add_up_bit_for_bit(
    seed: int, wire: Wire, tile: int, size: float
) -> None:
    layout, generator = layout_of(), stream(seed, "memory")
    memory = WorkerMemory(layout, tile=tile, wire=wire)
    for _ in range(3):
        memory.add(torch.randn(layout.d, generator=generator) * 10.0**size)
        before = memory.vector.clone()
        n = memory.tiling.n_tiles
        chosen = torch.randperm(n, generator=generator)[: 1 + n // 3].sort().values
        block = Block(memory.tiling, chosen)
        payload = memory.payload(block)
        assert torch.equal(memory.vector, before)  # nothing is gone before the round has ended
        memory.sent(block, payload)
        everything = memory.vector.clone()
        everything[block.columns] += payload.decoded(block, torch.float32)
        assert torch.equal(everything, before)


@pytest.mark.parametrize("wire", WIRES)
def test_rounding_is_sent_later(wire: Wire) -> None:
    layout = layout_of([(64,)])
    memory = WorkerMemory(layout, tile=8, wire=wire)
    update = torch.randn(64, generator=stream(0, "rounding"))
    block, received = block_of(memory, *range(8)), torch.zeros(64)
    for _ in range(50):
        memory.add(update)
        payload = memory.payload(block)
        memory.sent(block, payload)
        received += payload.decoded(block, torch.float32)
    torch.testing.assert_close(received / 50, update, rtol=1e-3, atol=1e-3)


def test_reports_are_the_norms_of_tiles() -> None:
    layout = layout_of()
    memory = WorkerMemory(layout, tile=4)
    for step in range(3):
        memory.add(torch.randn(layout.d, generator=stream(step, "update")))
        slow = [memory.vector[memory.tiling.columns(torch.tensor([t]))].norm() for t in range(16)]
        assert memory.tiling.n_tiles == 16
        torch.testing.assert_close(memory.report().float(), torch.stack(slow), rtol=4e-3, atol=0)
        block = block_of(memory, 0, 9, 15)
        memory.sent(block, memory.payload(block))
        assert memory.report()[block.tiles].tolist() == [0, 0, 0]


@pytest.mark.parametrize("tile", [64, 7 * CACHED // 5])
def test_a_large_vector_is_added_in_pieces(tile: int) -> None:
    layout = Layout([torch.zeros(3 * CACHED + 11, requires_grad=True)])
    memory, update = WorkerMemory(layout, tile=tile), torch.randn(layout.d)
    memory.add(update, scale=0.5)
    torch.testing.assert_close(memory.vector, 0.5 * update)
    torch.testing.assert_close(memory._norms, memory.tiling.norms(memory.vector))


def test_updates_come_as_one_vector_or_by_parameter() -> None:
    layout = layout_of()
    one, other, update = WorkerMemory(layout), WorkerMemory(layout), torch.randn(layout.d)
    one.add(update)
    other.add(layout.split(update))
    assert torch.equal(one.vector, other.vector)


def test_a_memory_that_forgets() -> None:
    layout = layout_of([(2,)])
    memory = WorkerMemory(layout, beta=0.5)
    for _ in range(3):
        memory.add(torch.ones(2))
    assert memory.vector.tolist() == [1.75, 1.75]


@pytest.mark.parametrize("garbage", [torch.nan, torch.inf, -torch.inf, 1e4, 1e38])
def test_garbage_is_left_out_and_counted(garbage: float) -> None:
    layout = layout_of([(8,)])
    memory = WorkerMemory(layout)
    for _ in range(6):
        assert memory.add(torch.ones(8))
    before = memory.vector.clone()
    update = torch.ones(8)
    update[3] = garbage
    assert not memory.add(update)
    assert memory.n_left_out == 1
    assert torch.equal(memory.vector, before)
    assert memory.add(torch.full((8,), 50.0))  # large, but within the limit


def test_the_first_updates_need_only_be_finite() -> None:
    memory = WorkerMemory(layout_of([(2,)]))
    assert memory.add(torch.full((2,), 1e-6))
    assert memory.add(torch.ones(2))
    assert not memory.add(torch.tensor([torch.nan, 0.0]))


@pytest.mark.parametrize("first", [0.0, 1e-9])
def test_learning_rates_may_change_by_any_factor(first: float) -> None:
    memory = WorkerMemory(layout_of([(4,)]))
    for scale in [first] * 30 + [0.1] * 10:
        assert memory.add(torch.ones(4), scale=scale)
    assert memory.vector.tolist() == pytest.approx([1.0] * 4)


def test_zeros_say_nothing_about_the_usual_length() -> None:
    memory = WorkerMemory(layout_of([(4,)]))
    for factor in [0.0] * 30 + [1.0] * 6 + [0.0] * 30:
        assert memory.add(torch.full((4,), factor))
    assert not memory.add(torch.full((4,), 1e4))


def test_updates_that_have_grown_for_good_are_used_after_ten() -> None:
    memory = WorkerMemory(layout_of([(4,)]))
    for _ in range(30):
        memory.add(torch.full((4,), 1e-6))
    again = WorkerMemory(layout_of([(4,)]))
    again.load_state_dict(memory.state_dict())
    assert [again.add(torch.ones(4)) for _ in range(20)] == [False] * 10 + [True] * 10
    assert again.n_left_out == 10


def test_an_update_that_leaves_the_range_after_scaling_is_left_out() -> None:
    memory = WorkerMemory(layout_of([(4,)]))
    assert not memory.add(torch.full((4,), 1e30), scale=1e10)
    assert memory.add(torch.full((4,), 1e30), scale=1e-10)


def test_parameters_may_be_empty() -> None:
    memory = WorkerMemory(layout_of([(0, 3), (4,), ()]), tile=2)
    assert memory.add([torch.ones(0, 3), torch.ones(4), torch.tensor(2.0)])
    assert memory.vector.tolist() == [1.0, 1.0, 1.0, 1.0, 2.0]


@pytest.mark.parametrize("wire", WIRES)
def test_a_restored_memory_goes_on_bit_for_bit(wire: Wire) -> None:
    layout, generator = layout_of(), stream(0, "restored")
    one = WorkerMemory(layout, tile=4, wire=wire)
    updates = torch.randn(8, layout.d, generator=generator)
    for update in updates[:4]:
        one.add(update)
    state = one.state_dict()
    other = WorkerMemory(layout, tile=4, wire=wire)
    other.load_state_dict(state)
    for update in updates[4:]:
        for memory in (one, other):
            memory.add(update)
            block = block_of(memory, 1, 5)
            memory.sent(block, memory.payload(block))
        assert torch.equal(one.vector, other.vector)
        assert torch.equal(one.report(), other.report())
    assert list(state["memory"]) == [f"parameter {i}" for i in range(4)]


def test_bad_input() -> None:
    layout = layout_of()
    memory = WorkerMemory(layout)
    with pytest.raises(ValueError, match=r"`update` must have shape \(58,\)"):
        memory.add(torch.ones(3))
    with pytest.raises(ValueError, match="`update` must have the parameters' shapes"):
        memory.add([torch.ones(3)])
    with pytest.raises(ValueError, match="`block` must be one of Tiling"):
        memory.payload(Block(WorkerMemory(layout, tile=3).tiling, torch.tensor([0])))
    with pytest.raises(ValueError, match="`wire` must be 'float32', 'bfloat16' or 'int8'"):
        WorkerMemory(layout, wire="int4")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`beta` must be in"):
        WorkerMemory(layout, beta=1.5)
    with pytest.raises(ValueError, match="`tile` must be a whole number"):
        WorkerMemory(layout, tile=0)
    with pytest.raises(ValueError, match=r"`state\['memory'\]` must have the parameters"):
        memory.load_state_dict(WorkerMemory(layout_of([(4,)])).state_dict())
    with pytest.raises(ValueError, match="`state` must be a mapping with the keys"):
        memory.load_state_dict({})
    assert memory.vector.count_nonzero() == 0
