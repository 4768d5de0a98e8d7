"""Payloads as bytes: of one size for every block, and back to the same numbers."""

import pytest
import torch

from holdfast.exchange import AgreedBlock, Round, Wire, WorkerMemory, message_size
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


@pytest.mark.parametrize("wire", ["float32", "bfloat16", "int8"])
def test_bytes_of_a_minority_mean_no_harm_whatever_they_are(wire: Wire) -> None:
    """Scales and exponents among them: a geometric median of 3 of 5 rows stays within 6 lengths."""
    layout, generator = layout_of(), torch.Generator().manual_seed(0)
    for trial in range(20):
        memories = [WorkerMemory(layout, tile=8, wire=wire) for _ in range(5)]
        this = Round(AgreedBlock(memories[0].tiling, send=0.5), "geometric-median")
        for i, memory in enumerate(memories):
            memory.add(torch.randn(layout.d, generator=generator))
            report = memory.report()
            if i < 2:
                raw = torch.randint(0, 256, (2 * len(report),), generator=generator)
                report = raw.to(torch.uint8).view(torch.bfloat16)
            this.report(i, report)
        block = this.agree()
        honest = []
        for i, memory in enumerate(memories):
            payload = memory.payload(block)
            if i < 2:
                dtype = payload.values.dtype
                size = message_size(block.tiling, len(block.tiles), dtype)
                raw = torch.randint(0, 256, (size,), generator=generator).to(torch.uint8)
                if trial % 2:
                    raw.view(torch.int32).fill_(0x7F7FFFFF)  # the largest number of float32
                payload = type(payload).unpacked(raw, block, dtype)
            else:
                honest.append(payload.decoded(block, torch.float32).norm())
            this.receive(i, payload)
        direction = this.aggregate().vector
        assert direction.isfinite().all()
        assert direction.norm() <= 6 * max(honest)
