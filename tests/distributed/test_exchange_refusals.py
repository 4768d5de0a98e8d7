"""What an exchange refuses: one sentence on every rank."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from holdfast.distributed import Exchange, guard
from tests.distributed.workers import Failure, Workers


def exchange(model: nn.Module | None = None, **options: Any) -> Exchange:
    model = nn.Linear(30, 20) if model is None else model
    return Exchange(model, torch.optim.SGD(model.parameters(), lr=0.1), **options)


def with_optimizer(make: Callable[[Any], Any], **options: Any) -> Exchange:
    model = nn.Linear(30, 20)
    return Exchange(model, make(model.parameters()), **options)


def sharded() -> nn.Module:
    model = nn.Linear(30, 20)
    fully_shard(model)
    return model


def guarded() -> None:
    model = nn.Linear(30, 20)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    guard(model, optimizer=optimizer)
    Exchange(model, optimizer)


def momentum_later() -> None:
    model = nn.Linear(30, 20)
    nn.init.ones_(model.weight)
    nn.init.ones_(model.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = Exchange(model, optimizer, send=0.5)
    optimizer.param_groups[0]["momentum"] = 0.9
    found.step()


PLAIN = "`model` must be a plain module: the exchange replaces the wrapper's all-reduce, got "
SGD = "`optimizer` must be SGD without momentum, or come with `local_steps`, got "

REFUSALS: dict[str, tuple[Callable[[], object], str]] = {
    "ddp": (lambda: exchange(DistributedDataParallel(nn.Linear(30, 20))), f"{PLAIN}Distributed"),
    "inside": (lambda: exchange(nn.Sequential(DistributedDataParallel(nn.Linear(3, 2)))), PLAIN),
    "fsdp": (lambda: exchange(sharded()), f"{PLAIN}FSDPLinear."),
    "SyncBatchNorm": (
        lambda: exchange(nn.Sequential(nn.Linear(3, 2), nn.SyncBatchNorm(2))),
        "`model` must have no SyncBatchNorm, whose sums over ranks no rule guards (use "
        "BatchNorm), got '1'.",
    ),
    "guard": (guarded, "`optimizer` must have no guard, which the exchange replaces, got one."),
    "momentum": (
        lambda: with_optimizer(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
        f"{SGD}momentum=0.9.",
    ),
    "momentum later": (momentum_later, f"{SGD}momentum=0.9."),
    "adam": (lambda: with_optimizer(torch.optim.Adam), f"{SGD}Adam."),
    "strangers": (
        lambda: with_optimizer(lambda p: torch.optim.SGD([*p, nn.Parameter(torch.ones(2))])),
        "`optimizer` must have parameters of the model only, got 1 others.",
    ),
    "local_steps": (
        lambda: exchange(local_steps=0),
        "`local_steps` must be a whole number of at least 1, got 0.",
    ),
    "tiles": (
        lambda: exchange(tile=32),
        "`rule` must have tiles of 32 columns, as `tile` says, got 64.",
    ),
    "reference": (
        lambda: exchange(rule="zeno(n_bad=1)"),
        "`rule` must need no `score`, which ranks do not have, got Zeno(n_bad=1).",
    ),
    "wire": (
        lambda: exchange(wire="int4"),
        "`wire` must be 'float32', 'bfloat16' or 'int8', got 'int4'.",
    ),
    "send": (lambda: exchange(send=0.0), "`send` must be in (0, 1], got 0.0."),
    "small": (
        lambda: exchange(nn.Linear(3, 2)),
        "`send` must be enough for one of the 2 tiles, got 0.02.",
    ),
    "frozen": (
        lambda: exchange(nn.Linear(30, 20).requires_grad_(False)),
        "`model` must have a parameter that requires a gradient, got none.",
    ),
    "no module": (
        lambda: Exchange(3, torch.optim.SGD([torch.ones(1, requires_grad=True)])),  # type: ignore[arg-type]
        "`model` must be a Module, got int.",
    ),
}


def refusal(name: str) -> None:
    REFUSALS[name][0]()


@pytest.mark.parametrize("name", REFUSALS)
def test_refused_on_every_rank(workers: Workers, name: str) -> None:
    for one in workers.outcomes(refusal, name):
        assert isinstance(one, Failure), name
        assert one.kind == "ValueError", one.trace
        assert REFUSALS[name][1] in one.message
        assert one.message.count("\n") == 0


def test_two_ranks_cannot_outvote_each_other(workers: Workers) -> None:
    for one in workers.outcomes(refusal_of_two, "geometric-median", n=2):
        assert one.kind == "ValueError"
        assert "resist one bad row of 2 (use at least three ranks, or 'mean'" in one.message
    workers.run(refusal_of_two, "mean", n=2)


def refusal_of_two(rule: str) -> None:
    torch.manual_seed(0)
    exchange(rule=f"blockwise(tile=64) | {rule}", send=0.5)


def test_a_process_group_is_needed() -> None:
    with pytest.raises(ValueError, match="`Exchange` must be made after init_process_group"):
        exchange()


def one_is_different(what: str) -> None:
    is_other = dist.get_rank() == 1
    model = nn.Linear(30, 21 if what == "shape" and is_other else 20)
    options: dict[str, Any] = {"send": 0.5, "timeout": timedelta(seconds=2)}
    if what == "options" and is_other:
        options["max_wait"] = 77
    if what == "absent" and is_other:
        raise KeyError("never comes")
    parameters = [model.weight] if what == "part" and is_other else model.parameters()
    Exchange(model, torch.optim.SGD(parameters, lr=0.1), **options)


DIFFERENCES = {
    "shape": "`parameter bias` must be the same on all ranks, got (21,) torch.float32 trained on "
    "rank 1 (",
    "options": "`options` must be the same on all ranks, got (0.5, 64, 1, 77, 1, None, ",
    "part": "`exchanged parameters` must be the same on all ranks, got ('weight',) on rank 1 (",
}


@pytest.mark.parametrize("what", DIFFERENCES)
def test_a_rank_that_is_different_is_named_on_all_ranks(workers: Workers, what: str) -> None:
    for one in workers.outcomes(one_is_different, what):
        assert one.kind == "RanksDifferError", one.trace
        assert one.message.startswith(DIFFERENCES[what])


def test_a_rank_that_does_not_come_is_named(workers: Workers) -> None:
    found = workers.outcomes(one_is_different, "absent")
    for rank in (0, 2, 3):
        assert found[rank].message == "rank 1 did not call `Exchange` in 2 seconds."
