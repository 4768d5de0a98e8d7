"""From a model in DDP, FSDP2 or neither to its guard."""

from collections.abc import Callable
from datetime import timedelta
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

import holdfast
from holdfast.aggregators import Aggregator, as_rule
from holdfast.checks import check_count, failure
from holdfast.distributed._ddp import BucketReducer, SingleBucketReducer, guarded
from holdfast.distributed._fsdp import NodeReducer, UnitAllGather, UnitReduceScatter, UnitSteps
from holdfast.distributed._guard import Guard
from holdfast.distributed._modes import Gathered, Mode, Sharded
from holdfast.distributed._plain import GradientReducer
from holdfast.distributed._replicas import OnMismatch, Replicas, SharedBuffers
from holdfast.distributed._roll_call import RollCall
from holdfast.distributed._suitable import (
    Kind,
    check_model,
    check_nodes,
    check_rule,
    kind_of_model,
    tensors_of,
)
from holdfast.monitor import Suspect

Per = Literal["model", "bucket", "unit"]
ModeName = Literal["sharded", "gathered"]

CHOICES: dict[Kind, tuple[Per, ...]] = {
    "ddp": ("model", "bucket"),
    "fsdp": ("unit",),
    "plain": ("model",),
}
"""What can be one row; the first is the default."""


def guard(
    model: nn.Module,
    rule: Aggregator | str = "radius-filter",
    *,
    optimizer: Optimizer | None = None,
    nodes: DeviceMesh | dist.ProcessGroup | None = None,
    per: Per | None = None,
    mode: ModeName = "sharded",
    check_every: int = 100,
    on_mismatch: OnMismatch = "warn",
    window: int = 200,
    on_suspect: Callable[[Suspect], None] | None = None,
    timeout: timedelta = timedelta(seconds=60),
) -> Guard:
    """Put a robust rule in the place of the all-reduce, so that a bad rank is left out and named.

    Call it once on every rank, after the model was wrapped and before the first backward pass. The
    training loop does not change. With nothing wrong, the default rule is the mean.

    All ranks must make the same backward passes, as without a guard: a rank that makes fewer of
    them is named once the timeout of the process group is over. What the guard knows may be read on
    any rank by itself.

    In `DistributedDataParallel.join`, a rank without data sends zeros and counts as left out, as
    does a rank whose whole gradient is zero; if fewer ranks have data than the rule needs, zeros
    count as rows. At the end of `join`, the wrapper copies the parameters of the rank that came
    last. A plain module is reduced in its optimizer's step, which all ranks must make: a gradient
    scaler that skips the step of one rank must not be used with it, and a closure is refused.

    Args:
        model: a module in `DistributedDataParallel`, or one that `fully_shard` was applied to, or a
            plain module with the same parameters on all ranks.
        rule: the rule or its name. It must outvote one rank, so two ranks are too few; `"mean"`
            leaves out only rows that are not finite.
        optimizer: the optimizer of a plain module; its steps begin with the rule.
        nodes: the group (or 1-D mesh) of ranks that hold the same shard in different nodes, for a
            model that `fully_shard` has sharded within each node. Rows are then whole nodes.
        per: what is one row: the whole "model" (the default, except for `fully_shard`), a "bucket"
            of DistributedDataParallel (reduced while the backward pass goes on), or a "unit" of
            `fully_shard`. A rule per bucket or unit decides for each block of columns by itself.
        mode: "sharded": every rank reduces its own columns of all rows, with the traffic of an
            all-reduce, for ranks that may compute garbage but follow the protocol. "gathered":
            every rank gets everything and trusts no other, with n times the traffic.
        check_every: after so many steps, checksums of the parameters are compared; 0 for never. Not
            for shards, of which there is only one.
        on_mismatch: what to do if the parameters of a rank differ from those of the majority:
            "warn", "raise", or "copy" those of the majority.
        window: number of steps that :meth:`Guard.suspects` looks at.
        on_suspect: called, on every rank, with a row that becomes suspect; by default a warning is
            logged. An error that it raises on one rank leaves the others waiting at the next step.
        timeout: how long to wait for the other ranks to call this function, :meth:`Guard.exclude`
            or :meth:`Guard.load_state_dict`.
    """
    rule = as_rule(rule)
    check_count("check_every", check_every)
    if not (dist.is_available() and dist.is_initialized()):
        raise failure("guard", "be called after init_process_group", "no process group")
    kind = kind_of_model(model, optimizer, nodes)
    if optimizer is not None and GradientReducer.is_attached_to(optimizer):
        raise failure("optimizer", "have no guard yet", "one")
    per = CHOICES[kind][0] if per is None else per
    _check_choice("per", per, CHOICES[kind])
    _check_choice("mode", mode, ("sharded", "gathered"))
    _check_choice("on_mismatch", on_mismatch, ("warn", "raise", "copy"))
    check_model(model, kind)
    group = _group_of_rows(model, nodes)
    check_rule(rule, group.size())
    everyone = group if nodes is None else dist.distributed_c10d._get_default_group()
    shard = 0
    if nodes is not None:
        inner = _mesh_of(model).get_group()
        check_nodes(group, inner, everyone)
        shard = inner.rank()
    device = next(model.parameters()).device
    options = (kind, per, mode, check_every, on_mismatch, window)
    common = {"torch": torch.__version__, "holdfast": holdfast.__version__, "rule": rule}
    roll = RollCall(everyone, device, common | {"options": options} | tensors_of(model), timeout)
    if per == "bucket":
        group = _twin_of(group, device)
    ranks = dist.get_process_group_ranks(group)
    members = [roll.members[dist.get_group_rank(everyone, rank)] for rank in ranks]
    is_on_one_host = len({member.host for member in roll.members}) == 1
    travels = _mode(mode, group, nodes is not None, model, device, is_on_one_host)
    found = Guard(rule, travels, roll, members, window=window, on_suspect=on_suspect)
    ignored = _ignored_names(model)
    copies = _local_parameters(model, ignored)
    # In the group of the thread, if there is one: others must not enter it.
    all_ranks = group if nodes is None else everyone
    replicas = Replicas(copies, group, all_ranks, shard, roll.members, on_mismatch, device)
    buffers = SharedBuffers(
        lambda: [one for name, one in model.named_buffers() if name not in ignored], group
    )

    def at_end() -> None:
        if kind != "fsdp":
            buffers.combine()
        has_replicas = kind != "fsdp" or nodes is not None
        if has_replicas and check_every and (found.n_steps + 1) % check_every == 0:
            replicas.check()

    if isinstance(model, DistributedDataParallel):
        _attach_to_ddp(found, model, per, at_end)
    elif isinstance(model, FSDPModule):
        _attach_to_units(found, model, nodes is not None, at_end)
    elif optimizer is not None:
        GradientReducer(found, model, at_end).attach_to(optimizer)
    return found


def _attach_to_ddp(
    found: Guard, model: DistributedDataParallel, per: Per, at_end: Callable[[], None]
) -> None:
    # The guard combines the buffers itself, at the end of every backward pass.
    model.broadcast_buffers = False
    make = BucketReducer if per == "model" else SingleBucketReducer
    model.register_comm_hook(make(found, at_end), guarded)


def _attach_to_units(
    found: Guard, model: FSDPModule, is_for_nodes: bool, at_end: Callable[[], None]
) -> None:
    assert isinstance(model, nn.Module)
    steps = UnitSteps(found, at_end)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_custom_all_gather(UnitAllGather(found))  # type: ignore[arg-type]
            if is_for_nodes:
                module.set_all_reduce_hook(NodeReducer(steps))
            else:
                module.set_custom_reduce_scatter(UnitReduceScatter(steps))  # type: ignore[arg-type]
    steps.watch(model)


def _group_of_rows(
    model: nn.Module, nodes: DeviceMesh | dist.ProcessGroup | None
) -> dist.ProcessGroup:
    """The ranks that have one row each."""
    if nodes is not None:
        return nodes.get_group() if isinstance(nodes, DeviceMesh) else nodes
    if isinstance(model, DistributedDataParallel):
        group: dist.ProcessGroup = model.process_group
        return group
    if isinstance(model, FSDPModule):
        return _mesh_of(model).get_group()
    return dist.distributed_c10d._get_default_group()


def _twin_of(group: dist.ProcessGroup, device: torch.device) -> dist.ProcessGroup:
    """Another group of the same ranks, with the same timeout."""
    found: dist.ProcessGroup = dist.new_group(
        dist.get_process_group_ranks(group),
        timeout=group._get_backend(device).options._timeout,
        use_local_synchronization=True,
    )
    return found


def _ignored_names(model: nn.Module) -> set[str]:
    """The parameters and buffers that every rank has to itself, as DistributedDataParallel says."""
    return {f"module.{name}" for name in getattr(model, "parameters_to_ignore", ())}


def _local_parameters(model: nn.Module, ignored: set[str]) -> list[Tensor]:
    """This rank's copies of parameters, or its shards of them."""
    chosen = [one for name, one in model.named_parameters() if name not in ignored]
    return [one.to_local() if isinstance(one, DTensor) else one for one in chosen]


def _mesh_of(model: nn.Module) -> DeviceMesh:
    """The mesh of a model that `fully_shard` was applied to."""
    return next(p.device_mesh for p in model.parameters() if isinstance(p, DTensor))


def _mode(
    mode: ModeName,
    group: dist.ProcessGroup,
    is_for_nodes: bool,
    model: nn.Module,
    device: torch.device,
    is_on_one_host: bool,
) -> Mode:
    if mode == "gathered":  # a node's row is spread over the shards of the node
        return Gathered(group, _mesh_of(model).get_group() if is_for_nodes else None, device)
    everyone = dist.distributed_c10d._get_default_group()
    holders = everyone if is_for_nodes else group
    return Sharded(group, holders, device, is_on_one_host=is_on_one_host)


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        allowed = " or ".join(map(repr, choices))
        raise failure(name, f"be {allowed} here", repr(value))
