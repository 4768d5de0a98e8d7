"""Checks of models and arguments for the guard and the exchange."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor, Replicate
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from holdfast.aggregators import Aggregator, Blockwise, Mean
from holdfast.checks import check_instance, failure
from holdfast.distributed._plain import GradientReducer
from holdfast.layout import Layout

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
"""What rules can read."""

Nodes = DeviceMesh | dist.ProcessGroup


def check_arguments(model: nn.Module, optimizer: Optimizer | None, nodes: Nodes | None) -> None:
    """Check that the model is parallel, and that the arguments fit it."""
    check_instance("model", model, nn.Module)
    if nodes is not None and not isinstance(model, FSDPModule):
        requirement = "be None for a model that fully_shard was not applied to"
        raise failure("nodes", requirement, type(nodes).__name__)
    if isinstance(model, (DistributedDataParallel, FSDPModule)):
        if optimizer is not None:
            requirement = "be None for a model whose wrapper reduces the gradients"
            raise failure("optimizer", requirement, type(optimizer).__name__)
        return
    for module in model.modules():
        if isinstance(module, FullyShardedDataParallel):
            requirement = "use fully_shard instead of FullyShardedDataParallel"
            raise failure("model", requirement, type(module).__name__)
        if isinstance(module, (DistributedDataParallel, FSDPModule)):
            requirement = "be the module that was wrapped, not one that contains it"
            raise failure("model", requirement, type(model).__name__)
    if optimizer is None:
        requirement = (
            "be in DistributedDataParallel, be sharded by fully_shard, or come with its `optimizer`"
        )
        raise failure("model", requirement, f"a plain {type(model).__name__}")
    check_instance("optimizer", optimizer, Optimizer)


def check_model(model: nn.Module) -> None:
    """Check that no gradients or statistics bypass the rule."""
    if isinstance(model, DistributedDataParallel):
        if model.mixed_precision is not None:
            requirement = "have no `mixed_precision` in DistributedDataParallel (use autocast)"
            raise failure("model", requirement, model.mixed_precision)
        if model._delay_all_reduce_params:
            requirement = "have no `delay_all_reduce_named_params`, which no rule guards"
            raise failure("model", requirement, f"{len(model._delay_all_reduce_params)} of them")
        if model._comm_hooks:
            hook = model._comm_hooks[0][0].__qualname__
            raise failure("model", "have no communication hook yet", repr(hook))
    for name, module in model.named_modules():
        if isinstance(module, nn.SyncBatchNorm):
            requirement = "have no SyncBatchNorm, whose sums over ranks no rule guards"
            raise failure("model", f"{requirement} (use BatchNorm)", repr(name))
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.sparse:
            raise failure("model", "have dense gradients (sparse=False)", repr(name))
        if isinstance(module, FSDPModule):
            _check_unit(name, module)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise failure("model", "have a parameter that requires a gradient", "none")
    meshes = set()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.dtype not in DTYPES:
            requirement = "have real floating-point parameters of 16 to 64 bits"
            raise failure("model", requirement, f"{parameter.dtype} for {name!r}")
        if not isinstance(parameter, DTensor):
            continue
        if not isinstance(model, FSDPModule):
            raise failure("model", "have no tensor-parallel parameters", repr(name))
        if parameter.device_mesh.ndim != 1:
            is_hybrid = any(isinstance(place, Replicate) for place in parameter.placements)
            requirement = "be sharded on a 1-D mesh"
            if is_hybrid:
                requirement += " (for nodes: the inner one, with the outer one as `nodes`)"
            raise failure("model", requirement, f"{parameter.device_mesh.ndim}-D for {name!r}")
        meshes.add(parameter.device_mesh)
        if len(meshes) > 1:
            raise failure("model", "be sharded on one mesh", f"another one for {name!r}")


def tensors_of(model: nn.Module) -> dict[str, str]:
    """The properties of the model's tensors that must be equal on all ranks, by name."""
    found = {}
    for name, parameter in model.named_parameters():
        kind = "trained" if parameter.requires_grad else "frozen"
        found[f"parameter {name}"] = f"{tuple(parameter.shape)} {parameter.dtype} {kind}"
    for name, buffer in model.named_buffers():
        found[f"buffer {name}"] = f"{tuple(buffer.shape)} {buffer.dtype}"
    return found


def check_nodes(
    group: dist.ProcessGroup, inner: dist.ProcessGroup, everyone: dist.ProcessGroup
) -> None:
    """Check that every rank belongs to exactly one shard of one node."""
    members, shards = (set(dist.get_process_group_ranks(one)) for one in (group, inner))
    n = everyone.size()
    if len(members) * len(shards) != n or members & shards != {dist.get_rank()}:
        requirement = f"cross the mesh of the model, so that both have {n} ranks in all"
        got = f"nodes of ranks {sorted(members)} for shards on ranks {sorted(shards)}"
        raise failure("nodes", requirement, got)


def _check_unit(name: str, module: FSDPModule) -> None:
    groups = module._get_fsdp_state()._fsdp_param_groups
    if len(groups) > 1:
        requirement = "have one group of parameters in every unit"
        raise failure("model", requirement, f"{len(groups)} in {name!r}")
    for group in groups:
        comm = type(group._reduce_scatter_comm).__name__
        if group._all_reduce_hook is not None or not comm.startswith("Default"):
            raise failure("model", "have no communication hook yet", f"one in {name!r}")


def check_rule(rule: Aggregator, n: int) -> None:
    """Check that the rule resists one of n rows and needs only what a guard has."""
    missing = sorted(rule.needs - {"generator"})
    if missing:
        raise failure("rule", f"need no `{missing[0]}`, which ranks do not have", rule)
    if isinstance(rule, Mean):
        return
    if n < rule.n_needed or rule.n_resisted(n) < 1:
        requirement = (
            f"outvote one bad row of {n} (take three ranks or more, "
            "or 'mean', which leaves out rows that are not finite)"
        )
        raise failure("rule", requirement, rule)


def check_exchangeable(model: nn.Module, optimizer: Optimizer) -> Layout:
    """The parameters of the optimizer by their names in the model, if both suit an exchange."""
    check_instance("model", model, nn.Module)
    check_instance("optimizer", optimizer, Optimizer)
    for module in model.modules():
        if isinstance(module, (DistributedDataParallel, FSDPModule, FullyShardedDataParallel)):
            requirement = "be plain: the exchange takes the place of the wrapper's all-reduce"
            raise failure("model", requirement, type(module).__name__)
    check_model(model)
    if GradientReducer.is_attached_to(optimizer):
        raise failure("optimizer", "have no guard, whose place the exchange takes", "one")
    given = {id(one) for group in optimizer.param_groups for one in group["params"]}
    named = [(name, one) for name, one in model.named_parameters() if id(one) in given]
    if len(named) < len(given):
        extra = len(given) - len(named)
        raise failure("optimizer", "have parameters of the model only", f"{extra} others")
    layout = Layout(named)
    devices = sorted({str(one.device) for one in layout.parameters})
    if len(devices) > 1:
        raise failure("model", "be on one device", " and ".join(devices))
    return layout


def check_rule_of_tiles(rule: Aggregator, n: int, tile: int) -> None:
    """Check that the rule resists one of n rows and has the same tiles as the exchange."""
    if isinstance(rule, Blockwise):
        if rule.tile not in (tile, "parameter"):
            raise failure("rule", f"have tiles of {tile} columns, as `tile` says", rule.tile)
        rule = rule.inner
    check_rule(rule, n)
