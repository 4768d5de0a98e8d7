"""On a GPU as on the CPU: `pytest -m cuda` on a machine that has one; elsewhere these are skipped.

`HOLDFAST_TEST_DEVICE=cpu pytest -m cuda` runs the same code on the CPU, and shows that the tests
are right but for the device.
"""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from holdfast.distributed import guard
from holdfast.lab import Config, run
from holdfast.optim import RobustOptimizer, robust_backward
from holdfast.seeds import stream
from holdfast.sources import MicroBatches, PerSample
from tests.aggregators.cases import CASES, Case, N

DEVICE = torch.device(os.environ.get("HOLDFAST_TEST_DEVICE", "cuda"))
N_DEVICES = torch.cuda.device_count() if DEVICE.type == "cuda" else 3
N_RANKS, BAD = 3, 1

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(N_DEVICES == 0, reason="no GPU (HOLDFAST_TEST_DEVICE=cpu would do without)"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_rule_gives_what_it_gives_on_the_cpu(case: Case) -> None:
    honest = case.rows(N, 23, dtype=torch.float64)
    for bad in (None, torch.nan, 1e30):
        rows = honest.clone()
        if bad is not None:
            rows[0] = bad
        there = rows.to(DEVICE)
        found = case.rule.aggregate(there, **case.extras(honest.to(DEVICE)))
        wanted = case.rule.aggregate(rows, **case.extras(honest))
        assert found.vector.device == there.device
        torch.testing.assert_close(found.vector.cpu(), wanted.vector, rtol=1e-6, atol=1e-6)
        assert torch.equal(found.rejected.cpu(), wanted.rejected.cpu())
        assert torch.equal(there.cpu().nan_to_num(7.0), rows.nan_to_num(7.0))


def small_model() -> nn.Module:
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.Tanh(), nn.Linear(6, 3))
    generator = stream(0, "model")
    for parameter in model.parameters():
        nn.init.normal_(parameter, generator=generator)
    return model.double()


def batch(step: int) -> tuple[Tensor, Tensor]:
    generator = stream(0, "batch", step)
    images = torch.randn(16, 12, generator=generator, dtype=torch.float64)
    return images, torch.randint(3, (16,), generator=generator)


def trained(device: torch.device, source: str, rule: str) -> nn.Module:
    """The model after five steps, the last two of which a second optimizer makes, from the state."""
    model = small_model().to(device)
    optimizer = robust(model, rule)
    rows_of: Any = (
        MicroBatches(model, nn.CrossEntropyLoss(), n_rows=8)
        if source == "slices"
        else PerSample(model, nn.CrossEntropyLoss(reduction="none"))
    )
    for step in range(5):
        if step == 3:
            state, optimizer = optimizer.state_dict(), robust(model, rule)
            optimizer.load_state_dict(state)
        images, labels = batch(step)
        rows = rows_of(images.to(device), labels.to(device))
        optimizer.zero_grad()
        optimizer.backward(rows)
        optimizer.step()
    return model


def robust(model: nn.Module, rule: str) -> RobustOptimizer:
    return RobustOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), rule)


@pytest.mark.parametrize("source", ["slices", "samples"])
@pytest.mark.parametrize("rule", ["radius-filter", "geometric-median", "bgmd", "coordinate-median"])
def test_training_gives_what_it_gives_on_the_cpu(source: str, rule: str) -> None:
    found, wanted = (trained(device, source, rule) for device in (DEVICE, torch.device("cpu")))
    for one, other in zip(found.parameters(), wanted.parameters(), strict=True):
        assert one.device.type == DEVICE.type
        torch.testing.assert_close(one.cpu(), other, rtol=1e-5, atol=1e-7)


def test_gradients_of_samples_by_inner_products() -> None:
    gradients = []
    for device in (DEVICE, torch.device("cpu")):
        model = small_model().to(device)
        images, labels = batch(0)
        loss = nn.CrossEntropyLoss(reduction="none")
        inputs, targets = images.to(device), labels.to(device)
        robust_backward(model, loss, inputs, targets, rule="geometric-median")
        gradients.append([parameter.grad for parameter in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        assert one is not None
        assert one.device.type == DEVICE.type
        torch.testing.assert_close(one.cpu(), other, rtol=1e-5, atol=1e-7)


def test_a_run_of_the_lab_ends_and_is_resumed(tmp_path: Path) -> None:
    config = Config(model="logistic-regression", n_rows=8, row_size=4, n_steps=6)
    run(config, tmp_path / "run", device=DEVICE, stop=lambda: True)
    record = run(config, tmp_path / "run", device=DEVICE)
    assert record.end == {"end": "finished", "step": 6}
    assert record.run["machine"]["device"].startswith(DEVICE.type)


def guarded(rank: int, store: str, results: Any) -> None:
    """A rank whose gradients are reduced by a rule; one rank sends -100 times its own."""
    is_cuda = DEVICE.type == "cuda"
    device = torch.device("cuda", rank) if is_cuda else torch.device("cpu")
    if is_cuda:
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if is_cuda else "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=N_RANKS,
        timeout=timedelta(seconds=60),
    )
    model = small_model().to(device)
    wrapped = DistributedDataParallel(model, device_ids=[rank] if is_cuda else None)
    watch = guard(wrapped, "radius-filter")
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    left_out = []
    for _ in range(4):
        images, labels = batch(rank if rank == BAD else 7)
        loss = nn.functional.cross_entropy(wrapped(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        (loss * (-100 if rank == BAD else 1)).backward()
        optimizer.step()
        left_out.append(watch.rejected)
    weights = torch.cat([parameter.detach().flatten().cpu() for parameter in model.parameters()])
    results.put((rank, left_out, weights.tolist()))
    dist.destroy_process_group()


@pytest.mark.skipif(N_DEVICES < N_RANKS, reason=f"fewer than {N_RANKS} GPUs")
def test_the_guard_leaves_out_a_bad_rank(tmp_path: Path) -> None:
    results = mp.get_context("spawn").SimpleQueue()
    mp.spawn(guarded, args=(str(tmp_path / "store"), results), nprocs=N_RANKS)  # type: ignore[attr-defined, no-untyped-call]
    found = sorted(results.get() for _ in range(N_RANKS))
    assert all(left_out == [[BAD]] * 4 for _, left_out, _ in found)
    assert found[0][2] == found[1][2] == found[2][2]
