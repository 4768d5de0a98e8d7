"""The outer step and local steps: federated averaging and DiLoCo are settings of one thing."""

import pytest
import torch

from holdfast import Layout
from holdfast.exchange import LocalSteps, OuterStep
from holdfast.geometry import Block, Tiling
from holdfast.seeds import stream
from tests.exchange.cases import layout_of


@pytest.mark.parametrize("nesterov", [False, True])
def test_with_everything_sent_it_is_torch_s_sgd(nesterov: bool) -> None:
    layout, twin = layout_of(), layout_of()
    step = OuterStep(layout, lr=0.7, momentum=0.9, nesterov=nesterov)
    torch_s = torch.optim.SGD(twin.parameters, lr=0.7, momentum=0.9, nesterov=nesterov)
    whole = Block(Tiling(layout.sizes, 4), torch.arange(16))
    for t in range(5):
        direction = torch.randn(layout.d, generator=stream(t, "direction"))
        step(whole, direction)
        torch_s.zero_grad()
        twin.write_gradient(direction)
        torch_s.step()
        torch.testing.assert_close(layout.values(), twin.values())


def test_columns_off_the_block_do_not_move() -> None:
    layout = layout_of()
    step = OuterStep(layout, momentum=0.5)
    tiling = Tiling(layout.sizes, 4)
    moved = torch.zeros(layout.d, dtype=torch.bool)
    for tiles in ([0, 9, 15], [8], [0]):
        block = Block(tiling, torch.tensor(tiles))
        before = layout.values()
        step(block, torch.ones(len(block)))
        changed = layout.values() != before
        assert torch.equal(torch.nonzero(changed)[:, 0], block.columns)
        moved |= changed
    # Sent twice: 1, then 0.5 * 1 + 1.
    assert layout.values()[:4].tolist() == [-2.5] * 4


def test_memory_formats_and_dtypes() -> None:
    image = torch.zeros(2, 3, 4, 4, requires_grad=True)
    last = torch.zeros(2, 3, 4, 4).contiguous(memory_format=torch.channels_last).requires_grad_()
    half = torch.zeros(5, dtype=torch.bfloat16, requires_grad=True)
    for first in (image, last):
        layout = Layout([first, half])
        block = Block(Tiling(layout.sizes, 8), torch.tensor([3, 12]))
        OuterStep(layout)(block, torch.arange(1.0, len(block) + 1))
    assert torch.equal(image, last)
    assert half.tolist() == [-18.0, -20.0, -22.0, -24.0, -26.0]  # both layouts share it


def test_a_restored_step_goes_on_equally() -> None:
    layout, twin = layout_of(), layout_of()
    one, other = (OuterStep(each, momentum=0.9) for each in (layout, twin))
    block = Block(Tiling(layout.sizes, 4), torch.tensor([1, 2]))
    one(block, torch.ones(len(block)))
    other.load_state_dict(one.state_dict())
    twin.write_values(layout.values())
    for step in (one, other):
        step(block, torch.ones(len(block)))
    assert torch.equal(layout.values(), twin.values())
    with pytest.raises(ValueError, match="got a velocity"):
        OuterStep(layout).load_state_dict(one.state_dict())
    with pytest.raises(ValueError, match="`nesterov` must be False without momentum"):
        OuterStep(layout, nesterov=True)


def test_local_steps_of_any_optimizer_give_the_difference_of_parameters() -> None:
    layout = layout_of()
    start = layout.values()
    local = LocalSteps(layout)
    optimizer = torch.optim.AdamW(layout.parameters, lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        torch.stack([(p - 1).square().sum() for p in layout.parameters]).sum().backward()
        optimizer.step()
    after = layout.values()
    assert torch.equal(local.update(), start - after)
    assert torch.equal(layout.values(), start)
    layout.write_values(after)
    local.begin()
    assert local.update().count_nonzero() == 0
