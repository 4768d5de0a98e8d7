"""Payloads as bytes: of one size for every block, and back to the same numbers."""

import pytest
import torch

from holdfast.exchange import WorkerMemory, message_size
from holdfast.geometry import Block, Tiling
from tests.exchange.cases import layout_of


@pytest.mark.parametrize("wire", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("tiles", [[0, 1], [3, 8], [8, 10]])
def test_packed_and_unpacked(wire: str, tiles: list[int]) -> None:
    layout = layout_of()
    memory = WorkerMemory(layout, tile=8, wire=wire)  # type: ignore[arg-type]
    memory.add(torch.randn(layout.d, generator=torch.Generator().manual_seed(0)))
    tiles = [tile % memory.tiling.n_tiles for tile in tiles]
    block = Block(memory.tiling, torch.tensor(sorted(set(tiles))))
    payload = memory.payload(block)
    dtype = payload.values.dtype
    size = message_size(memory.tiling, 2, dtype)
    message = payload.packed(size)
    assert message.shape == (size,)
    assert size % 8 == 0
    assert payload.n_bytes <= size
    again = type(payload).unpacked(message, block, dtype)
    assert again.decoded(block, torch.float32).equal(payload.decoded(block, torch.float32))


def test_most_columns() -> None:
    tiling = Tiling((5, 2, 7), width=3)  # tiles of 3, 2; 2; 3, 3, 1 columns
    assert [tiling.most_columns(n) for n in range(7)] == [0, 3, 6, 9, 11, 13, 14]


def test_a_cleared_memory_is_new() -> None:
    layout = layout_of()
    memory, fresh = WorkerMemory(layout, tile=8), WorkerMemory(layout, tile=8)
    memory.add(torch.full((layout.d,), torch.nan))
    memory.add(torch.ones(layout.d))
    memory.clear()
    assert memory.report().equal(fresh.report())
    assert memory.state_dict()["recent"] == []
    assert memory.n_left_out == 0
    assert not bool(memory.vector.any())


def test_a_scale_for_each_parameter() -> None:
    layout = layout_of()
    memory = WorkerMemory(layout, tile=8)
    update = [torch.ones(shape) for shape in layout.shapes]
    assert memory.add(update, scale=[1.0, 2.0, -3.0, 0.0])
    found = [float(part.flatten()[0]) for part in layout.split(memory.vector)]
    assert found == [1.0, 2.0, -3.0, 0.0]
    assert memory.report().float().equal(memory.tiling.norms(memory.vector).bfloat16().float())
