"""What a guard refuses: one sentence on every rank, and never a hang."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import Replicate, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from holdfast.distributed import guard
from tests.distributed.cases import Known, shard
from tests.distributed.workers import Failure, Workers

SOON = timedelta(seconds=2)


def linear() -> nn.Module:
    return nn.Linear(3, 2)


def in_ddp(model: nn.Module | None = None, **options: Any) -> DistributedDataParallel:
    return DistributedDataParallel(linear() if model is None else model, **options)


def plain(model: nn.Module, **options: Any) -> None:
    guard(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), **options)


def second_hook() -> None:
    model = in_ddp()
    model.register_comm_hook(None, lambda state, bucket: bucket)
    guard(model)


def sharded(**options: Any) -> nn.Module:
    model = linear()
    fully_shard(model, **options)
    return model


def twice(model: nn.Module) -> None:
    guard(model)
    guard(model)


def twice_plain() -> None:
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    guard(model, optimizer=optimizer)
    guard(model, optimizer=optimizer)


def tensor_parallel() -> None:
    model = linear()
    mesh = init_device_mesh("cpu", (4,))
    for name, parameter in list(model.named_parameters()):
        setattr(model, name, nn.Parameter(distribute_tensor(parameter, mesh, [Replicate()])))
    plain(model)


def native_hybrid() -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("out", "in"))
    guard(sharded(mesh=mesh))


def two_meshes() -> None:
    model = nn.Sequential(linear(), nn.Linear(2, 2))
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("out", "in"))
    fully_shard(model[0], mesh=mesh["in"])
    fully_shard(model, mesh=init_device_mesh("cpu", (4,)))
    guard(model)


def wrong_nodes() -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("out", "in"))
    guard(sharded(mesh=mesh["in"]), "mean", nodes=mesh["in"])


def divided_otherwise() -> None:
    model = sharded()
    assert isinstance(model, FSDPModule)
    model.set_gradient_divide_factor(3.0)
    guard(model)
    model(torch.ones(1, 3)).sum().backward()


def with_a_closure() -> None:
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    guard(model, optimizer=optimizer)
    optimizer.step(lambda: model(torch.ones(1, 3)).sum())


def delayed() -> None:
    model = linear()
    names = [("bias", model.bias)]
    guard(in_ddp(model, delay_all_reduce_named_params=names, param_to_hook_all_reduce=model.weight))


def sparse_later() -> None:
    model = nn.Embedding(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    guard(model, optimizer=optimizer)
    model.sparse = True
    model(torch.tensor([1])).sum().backward()
    optimizer.step()


def frozen() -> None:
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    guard(model.requires_grad_(False), optimizer=optimizer)


REFUSALS: dict[str, tuple[Callable[[], object], str]] = {
    "score": (
        lambda: guard(in_ddp(), "zeno(n_bad=1)"),
        "`rule` must need no `score`, which ranks do not have, got Zeno(n_bad=1).",
    ),
    "rows": (
        lambda: guard(in_ddp(), "krum(n_bad=1)"),
        "`rule` must outvote one bad row of 4 (take three ranks or more, or 'mean', which leaves "
        "out rows that are not finite), got Krum(n_bad=1).",
    ),
    "unknown": (lambda: guard(in_ddp(), "nothing"), "nothing"),
    "per": (lambda: guard(in_ddp(), per="unit"), "`per` must be 'model' or 'bucket' here"),
    "per of units": (
        lambda: guard(sharded(), per="model"),
        "`per` must be 'unit' here, got 'model'.",
    ),
    "mode": (
        lambda: guard(in_ddp(), mode="whole"),  # type: ignore[arg-type]
        "`mode` must be 'sharded' or 'gathered' here, got 'whole'.",
    ),
    "on_mismatch": (
        lambda: guard(in_ddp(), on_mismatch="ignore"),  # type: ignore[arg-type]
        "`on_mismatch` must be 'warn' or 'raise' or 'copy' here, got 'ignore'.",
    ),
    "check_every": (
        lambda: guard(in_ddp(), check_every=-1),
        "`check_every` must be a whole number of at least 0, got -1.",
    ),
    "window": (
        lambda: guard(in_ddp(), window=3),
        "`window` must be a whole number of at least 20, got 3.",
    ),
    "SyncBatchNorm": (
        lambda: plain(nn.Sequential(linear(), nn.SyncBatchNorm(2))),
        "`model` must have no SyncBatchNorm, whose sums over ranks no rule guards (use "
        "BatchNorm), got '1'.",
    ),
    "sparse": (
        lambda: guard(in_ddp(nn.Embedding(3, 2, sparse=True))),
        "`model` must have dense gradients (sparse=False), got 'module'.",
    ),
    "sparse later": (
        sparse_later,
        "`model` must have dense gradients (sparse=False), got a sparse gradient.",
    ),
    "hook": (second_hook, "`model` must have no communication hook yet, got 'second_hook"),
    "twice": (
        lambda: twice(in_ddp()),
        "`model` must have no communication hook yet, got 'guarded'.",
    ),
    "twice fsdp": (
        lambda: twice(shard(Known())),
        "`model` must have no communication hook yet, got one in 'units.0'.",
    ),
    "twice plain": (twice_plain, "`optimizer` must have no guard yet, got one."),
    "FSDP1": (
        lambda: plain(FullyShardedDataParallel(linear(), device_id=torch.device("cpu"))),
        "`model` must use fully_shard instead of FullyShardedDataParallel, got "
        "FullyShardedDataParallel.",
    ),
    "around": (
        lambda: plain(nn.Sequential(in_ddp())),
        "`model` must be the module that was wrapped, not one that contains it, got Sequential.",
    ),
    "no optimizer": (
        lambda: guard(linear()),
        "`model` must be in DistributedDataParallel, be sharded by fully_shard, or come with its "
        "`optimizer`, got a plain Linear.",
    ),
    "optimizer": (
        lambda: guard(m := in_ddp(), optimizer=torch.optim.SGD(m.parameters(), lr=0.1)),
        "`optimizer` must be None for a model whose wrapper reduces the gradients, got SGD.",
    ),
    "closure": (with_a_closure, "`optimizer` must be stepped without a closure, got one."),
    "nodes": (
        lambda: guard(in_ddp(), nodes=dist.group.WORLD),
        "`nodes` must be None for a model that fully_shard was not applied to",
    ),
    "wrong nodes": (
        wrong_nodes,
        "`nodes` must cross the mesh of the model, so that both have 4 ranks in all",
    ),
    "native hybrid": (
        native_hybrid,
        "`model` must be sharded on a 1-D mesh (for nodes: the inner one, with the outer one as "
        "`nodes`), got 2-D for 'weight'.",
    ),
    "two meshes": (two_meshes, "`model` must be sharded on one mesh, got another one for"),
    "tensor parallel": (
        tensor_parallel,
        "`model` must have no tensor-parallel parameters, got 'weight'.",
    ),
    "divide factor": (
        divided_otherwise,
        "`model` must be reduced by AVG or SUM (without `set_gradient_divide_factor`), got",
    ),
    "delayed": (
        delayed,
        "`model` must have no `delay_all_reduce_named_params`, which no rule guards, got 1 of "
        "them.",
    ),
    "frozen": (frozen, "`model` must have a parameter that requires a gradient, got none."),
    "complex": (
        lambda: plain(nn.Linear(2, 2, dtype=torch.complex64)),
        "`model` must have real floating-point parameters of 16 to 64 bits, got torch.complex64",
    ),
    "no module": (lambda: guard(3), "`model` must be a Module, got int."),  # type: ignore[arg-type]
}


def refusal(name: str) -> None:
    REFUSALS[name][0]()


@pytest.mark.parametrize("name", REFUSALS)
def test_refused_on_every_rank(workers: Workers, name: str) -> None:
    for one in workers.outcomes(refusal, name):
        assert isinstance(one, Failure), name
        assert one.kind in ("ValueError", "UnknownNameError"), one.trace
        assert REFUSALS[name][1] in one.message
        assert one.message.count("\n") == 0


def test_two_ranks_cannot_outvote_each_other(workers: Workers) -> None:
    for one in workers.outcomes(two_ranks, "radius-filter", n=2):
        assert one.kind == "ValueError"
        assert "outvote one bad row of 2 (take three ranks or more, or 'mean'" in one.message
    for gradient, rejected in workers.run(two_ranks, "mean", n=2):
        assert gradient == [1.0, 1.0]
        assert rejected == [1]


def two_ranks(rule: str) -> Any:
    model = in_ddp(nn.Linear(2, 1, bias=False))
    found = guard(model, rule)
    model(torch.full((1, 2), 1.0 if dist.get_rank() == 0 else torch.nan)).sum().backward()
    return model.module.weight.grad.flatten().tolist(), found.rejected


def test_a_process_group_is_needed() -> None:
    model = linear()
    with pytest.raises(ValueError, match="`guard` must be called after init_process_group"):
        guard(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))


def one_is_different(what: str) -> None:
    is_other = dist.get_rank() == 1
    model: nn.Module = linear()
    if what == "shape" and is_other:
        model = nn.Linear(4, 2)
    if what == "frozen" and is_other:
        model.bias.requires_grad_(False)
    if what == "dtype" and is_other:
        model.double()
    if what == "buffer" and is_other:
        model.register_buffer("more", torch.ones(2))
    if what == "parameter" and is_other:
        model.register_parameter("more", nn.Parameter(torch.ones(2)))
    options: dict[str, Any] = {"timeout": SOON}
    rule = "radius-filter"
    if what == "rule" and is_other:
        rule = "radius-filter(reach=5)"
    if what == "options" and is_other:
        options["check_every"] = 7
    if what == "absent" and is_other:
        raise KeyError("never comes")
    plain(model, rule=rule, **options)


DIFFERENCES = {
    "shape": "`parameter weight` must be the same on all ranks, got (2, 4) torch.float32 trained "
    "on rank 1 (",
    "frozen": "`parameter bias` must be the same on all ranks, got (2,) torch.float32 frozen on "
    "rank 1 (",
    "dtype": "`parameter bias` must be the same on all ranks, got (2,) torch.float64 trained on "
    "rank 1 (",
    "buffer": "`buffer more` must be the same on all ranks, got (2,) torch.float32 on rank 1 (",
    "parameter": "`parameter more` must be the same on all ranks, got (2,) torch.float32 trained "
    "on rank 1 (",
    "rule": "`rule` must be the same on all ranks, got RadiusFilter(reach=5) on rank 1 (",
    "options": "`options` must be the same on all ranks, got ('Plain', 'model', 'sharded', 7, ",
}


@pytest.mark.parametrize("what", DIFFERENCES)
def test_a_rank_that_is_different_is_named_on_all_ranks(workers: Workers, what: str) -> None:
    found = workers.outcomes(one_is_different, what)
    for one in found:
        assert one.kind == "RanksDifferError", one.trace
        assert one.message.startswith(DIFFERENCES[what])
        assert one.message == found[0].message


def test_a_rank_that_does_not_come_is_named(workers: Workers) -> None:
    found = workers.outcomes(one_is_different, "absent")
    assert found[1].kind == "KeyError"
    for rank in (0, 2, 3):
        assert found[rank].kind == "RankFailedError"
        assert found[rank].message == "rank 1 did not call `guard` in 2 seconds."
