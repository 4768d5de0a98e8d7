"""What all ranks must have in common: buffers, parameters, and the state of their guards."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from holdfast.distributed import guard
from holdfast.distributed._replicas import checksum
from tests.distributed.cases import Known, guarded_model
from tests.distributed.workers import Workers


class WithBuffers(nn.Module):
    """A model with statistics, and with buffers that are not finite, not floating or empty."""

    seen: Tensor
    short: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 3), nn.BatchNorm1d(3)
        self.register_buffer("mask", torch.full((3,), -torch.inf))
        self.register_buffer("seen", torch.zeros(2, dtype=torch.int64))
        self.register_buffer("flag", torch.tensor(True))
        self.register_buffer("nothing", torch.zeros(0))
        self.register_buffer("short", torch.zeros(5, dtype=torch.bfloat16))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.norm(self.layer(x))
        return found


def buffers_after_a_step(kind: str, per: Any) -> dict[str, Tensor]:
    torch.manual_seed(0)
    inner = WithBuffers()
    model: nn.Module = inner
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    if kind == "ddp":
        model = DistributedDataParallel(inner)
        guard(model, per=per)
        assert not model.broadcast_buffers
    else:
        guard(model, optimizer=optimizer)
    rank = dist.get_rank()
    garbage = torch.nan if rank == 0 else rank
    inner.seen += torch.tensor([rank, 7])
    inner.short += garbage
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(1)) + 0.01 * rank
    if rank == 0:
        x *= 1e20
    model(x).square().mean().backward()
    optimizer.step()
    return {name: buffer.clone() for name, buffer in inner.named_buffers()}


@pytest.mark.parametrize(("kind", "per"), [("ddp", "model"), ("ddp", "bucket"), ("plain", None)])
def test_buffers_are_medians_of_all_ranks(workers: Workers, kind: str, per: str | None) -> None:
    found = workers.run(buffers_after_a_step, kind, per)
    for buffers in found:
        for name, buffer in buffers.items():
            assert buffer.equal(found[0][name]), name
        assert buffers["norm.running_mean"].abs().max() < 10  # although that of rank 0 is huge
        assert buffers["norm.running_var"].max() < 10
        assert buffers["norm.num_batches_tracked"] == 1
        assert buffers["mask"].eq(-torch.inf).all()
        assert buffers["seen"].tolist() == [1, 7]
        assert buffers["short"].eq(2.0).all()  # of 1, 2 and 3


def two_passes_at_once() -> int:
    """A pass in evaluation mode saves buffers for its backward pass; a step must not spoil them."""
    model = DistributedDataParallel(WithBuffers())
    found = guard(model)
    model.eval()
    first, second = model(torch.ones(2, 4)).sum(), model(torch.zeros(2, 4)).sum()
    first.backward()
    with model.no_sync():
        second.backward()
    return found.n_steps


def test_buffers_that_agree_are_not_written(workers: Workers) -> None:
    assert workers.run(two_passes_at_once) == [1] * 4


@contextmanager
def logged() -> Iterator[list[str]]:
    """The warnings of the library."""
    found: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("holdfast").addHandler(handler)
    try:
        yield found
    finally:
        logging.getLogger("holdfast").removeHandler(handler)


def first_values(model: nn.Module) -> Tensor:
    """The first parameter of this rank, or its shard of it, as a vector."""
    parameter = next(model.parameters()).detach()
    return (parameter.to_local() if isinstance(parameter, DTensor) else parameter).view(-1)


def with_other_parameters(kind: str, on_mismatch: Any, bad_ranks: list[int]) -> Any:
    """Three steps with a check after two, before which some ranks change a number."""
    rule = "mean" if kind == "nodes" else "radius-filter"
    model, found, optimizer = guarded_model(
        kind, rule, Known(), check_every=2, on_mismatch=on_mismatch
    )
    with logged() as messages:
        for step in range(3):
            optimizer.zero_grad()
            model(torch.ones(194)).backward()
            optimizer.step()
            if step == 0 and dist.get_rank() in bad_ranks:
                first_values(model)[2] += 1.0 + dist.get_rank()
    return messages, first_values(model)[2].item(), found.n_steps


@pytest.mark.parametrize("kind", ["ddp", "bucket", "plain"])
def test_other_parameters_are_named(workers: Workers, kind: str) -> None:
    for rank, (messages, value, _) in enumerate(
        workers.run(with_other_parameters, kind, "warn", [2])
    ):
        assert len(messages) == 1
        assert messages[0].startswith("parameters of rank 2 (")
        assert messages[0].endswith("differ from those of the other ranks")
        assert value == (4.0 if rank == 2 else 1.0)


def test_other_parameters_are_replaced(workers: Workers) -> None:
    for messages, value, n_steps in workers.run(with_other_parameters, "ddp", "copy", [0]):
        assert "rank 0" in messages[0]
        assert messages[0].endswith("they were replaced by those of the majority")
        assert value == 1.0
        assert n_steps == 3


@pytest.mark.parametrize("kind", ["ddp", "bucket", "plain"])
def test_other_parameters_raise_an_error_on_all_ranks(workers: Workers, kind: str) -> None:
    for one in workers.outcomes(with_other_parameters, kind, "raise", [3]):
        assert one.kind == "RanksDifferError", one.trace
        assert one.message.startswith("parameters of rank 3 (")


def test_no_majority(workers: Workers) -> None:
    for one in workers.outcomes(with_other_parameters, "ddp", "copy", [0, 1]):
        assert one.kind == "RanksDifferError", one.trace
        assert one.message == "no majority of the ranks has the same parameters."


def test_shards_of_nodes_raise_an_error_on_all_ranks(workers: Workers) -> None:
    # Only ranks 1 and 3 have the shard that differs.
    for one in workers.outcomes(with_other_parameters, "nodes", "raise", [3]):
        assert one.kind == "RanksDifferError", one.trace


def ignored(on_mismatch: Any) -> tuple[list[str], list[float], list[float]]:
    """A parameter and a buffer that DistributedDataParallel leaves alone."""
    inner = WithBuffers()
    names = ["layer.bias", "short"]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(inner, names)
    with torch.no_grad():
        inner.layer.bias.fill_(float(dist.get_rank()))
        inner.short.fill_(float(dist.get_rank()))
    model = DistributedDataParallel(inner)
    guard(model, check_every=1, on_mismatch=on_mismatch)
    with logged() as messages:
        model(torch.eye(4)).sum().backward()
    return messages, inner.layer.bias.tolist(), inner.short.tolist()


def test_what_the_wrapper_ignores_is_left_alone(workers: Workers) -> None:
    for rank, (messages, bias, short) in enumerate(workers.run(ignored, "copy")):
        assert not messages
        assert bias == [float(rank)] * 3
        assert short == [float(rank)] * 5


DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_checksum_notices_what_an_exclusive_or_misses(dtype: torch.dtype) -> None:
    usual = torch.randn(1000, generator=torch.Generator().manual_seed(0)).to(dtype)
    other = torch.ones(7, dtype=dtype)
    total = checksum([usual, other])
    assert total == checksum([usual.clone(), other.clone()])
    assert -(2**63) <= total < 2**63
    exchanged = usual.clone()
    exchanged[[3, 900]] = usual[[900, 3]]
    assert checksum([exchanged, other]) != total
    signs = usual.clone()
    signs[[4, 5]] *= -1  # the highest bit of two numbers
    assert checksum([signs, other]) != total
    opposite = torch.cat([usual, -usual])
    assert checksum([opposite]) != checksum([-opposite])
    across = signs.clone()
    across[5] *= -1
    assert checksum([across, -other]) != checksum([usual, other])
    assert checksum([other, usual]) != total
    assert checksum([usual, other[:0], other]) == checksum([usual, other[:0], other])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_checksum_notices_every_pair_of_flipped_bits(dtype: torch.dtype) -> None:
    usual = torch.randn(5, generator=torch.Generator().manual_seed(1)).to(dtype)
    bits = usual.view(torch.int32)
    totals = set()
    flips = [(i, bit) for i in range(len(bits)) for bit in range(32)]
    for first in flips[::3]:
        for second in flips:
            changed = bits.clone()
            for i, bit in {first, second}:
                changed[i] ^= -(2**31) if bit == 31 else 2**bit
            totals.add(checksum([changed.view(dtype)]))
    assert checksum([usual]) not in totals
