"""Models with known gradients, and what one rank of a guarded training sees."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from holdfast.distributed import Guard, guard
from holdfast.distributed._modes import Sharded

SHAPES: list[list[tuple[int, ...]]] = [[(5, 7), (3,)], [(2, 3, 4)], [(11,), (40, 3), ()]]
"""Shapes of the parameters of three units; none of them divides by the number of ranks."""

SIZES = [sum(torch.Size(shape).numel() for shape in unit) for unit in SHAPES]


class Unit(nn.Module):
    """Some parameters whose gradients are the input."""

    def __init__(self, shapes: Sequence[tuple[int, ...]]) -> None:
        super().__init__()
        # `fully_shard` refuses scalars.
        sizes = [shape or (1,) for shape in shapes]
        self.values = nn.ParameterList([torch.ones(size) for size in sizes])

    def forward(self, row: Tensor) -> Tensor:
        parts = row.split([value.numel() for value in self.values])
        pairs = zip(self.values, parts, strict=True)
        return torch.stack([(value.flatten() * part).sum() for value, part in pairs]).sum()


class Known(nn.Module):
    """A model whose gradient is its input [d], to the bit."""

    def __init__(self, shapes: Sequence[Sequence[tuple[int, ...]]] = SHAPES) -> None:
        super().__init__()
        self.units = nn.ModuleList([Unit(unit) for unit in shapes])

    def forward(self, row: Tensor) -> Tensor:
        sizes = [sum(value.numel() for value in unit.parameters()) for unit in self.units]
        parts = row.split(sizes)
        return torch.stack([unit(p) for unit, p in zip(self.units, parts, strict=True)]).sum()


@dataclass(frozen=True)
class Seen:
    """What one rank has after one step.

    Attributes:
        gradient: [d] of the whole model.
        rejected: the rows left out.
        weights: [n] or None.
        blocks: the columns that were reduced together, for a rule per bucket.
    """

    gradient: Tensor
    rejected: list[int]
    weights: Tensor | None
    blocks: list[list[int]]


def full(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def gradient_of(model: nn.Module) -> Tensor:
    """[d] the gradient in the order of the parameters; zeros where there is none."""
    parts = []
    for parameter in model.parameters():
        grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        parts.append(full(grad.detach()).flatten())
    return torch.cat(parts).clone()


def guarded_model(
    kind: str, rule: str, model: nn.Module, **options: Any
) -> tuple[nn.Module, Guard, torch.optim.Optimizer]:
    """The model in the wrapper `kind`, its guard, and an optimizer that changes nothing."""
    if kind == "plain":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        return model, guard(model, rule, optimizer=optimizer, **options), optimizer
    if kind in ("ddp", "bucket"):
        # So small that every parameter has a bucket of its own once they are rebuilt.
        model = DistributedDataParallel(model, bucket_cap_mb=1e-5)
        options.setdefault("per", "bucket" if kind == "bucket" else "model")
    elif kind == "fsdp":
        model = shard(model)
    elif kind == "nodes":
        mesh = init_device_mesh(
            "cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("out", "in")
        )
        model = shard(model, mesh=mesh["in"])
        options["nodes"] = mesh["out"]
    found = guard(model, rule, **options)
    return model, found, torch.optim.SGD(model.parameters(), lr=0.0)


def shard(model: nn.Module, **options: Any) -> nn.Module:
    """Every unit of a `Known` model in its own unit of `fully_shard`."""
    assert isinstance(model.units, nn.ModuleList)
    for unit in model.units:
        fully_shard(unit, **options)
    fully_shard(model, **options)
    return model


def columns_of_buckets(model: nn.Module) -> list[list[int]]:
    """The columns of every bucket of DistributedDataParallel, in their order."""
    if not isinstance(model, DistributedDataParallel):
        return []
    starts: dict[Tensor, int] = {}
    at = 0
    for parameter in model.parameters():
        starts[parameter] = at
        at += parameter.numel()
    return [
        [starts[p] + i for p in bucket.parameters() for i in range(p.numel())]
        for bucket in model.reducer._get_zeros_like_grad_buckets()
    ]


def steps(kind: str, rule: str, batches: Sequence[Tensor], options: dict[str, Any]) -> list[Seen]:
    """One step for each of the `batches` [n, d], of which every rank takes its row."""
    model, found, optimizer = guarded_model(kind, rule, Known(), **options)
    seen = []
    for batch in batches:
        optimizer.zero_grad()
        loss = model(batch[dist.get_rank()])
        blocks = columns_of_buckets(model)  # they are rebuilt in a forward pass
        loss.backward()
        optimizer.step()
        seen.append(Seen(gradient_of(model), found.rejected, found.weights, blocks))
    return seen


def two_nodes(rule: str, batches: Sequence[Tensor], options: dict[str, Any]) -> list[Seen]:
    """Steps of two nodes, which no rule can outvote: for the arithmetic only."""
    with mock.patch("holdfast.distributed._attach.check_rule"):
        return steps("nodes", rule, batches, options)


def both_exchanges(size: int) -> list[Tensor]:
    """The rows of this rank, and its vector gathered again, within a host and between hosts."""
    group = dist.distributed_c10d._get_default_group()
    found = []
    for is_on_one_host in (True, False):
        mode = Sharded(group, group, torch.device("cpu"), is_on_one_host=is_on_one_host)
        for _ in range(2):  # the second time in the same memory
            sent = mode.send(torch.arange(size, dtype=torch.float64) + 0.1 * dist.get_rank())
            rows = sent.wait()
            found += [rows.clone(), mode.whole(rows[0].clone(), sent)]
    return found
