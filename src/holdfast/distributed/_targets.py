"""The models that a guard supports: one class for each kind."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import ClassVar, Literal, final

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from holdfast.checks import failure
from holdfast.distributed._ddp import BucketReducer, SingleBucketReducer, guarded
from holdfast.distributed._fsdp import NodeReducer, UnitAllGather, UnitReduceScatter, UnitSteps
from holdfast.distributed._guard import Guard
from holdfast.distributed._modes import Gathered, Mode, Sharded
from holdfast.distributed._plain import GradientReducer
from holdfast.distributed._suitable import Nodes, check_arguments, check_model, check_nodes

Per = Literal["model", "bucket", "unit"]
ModeName = Literal["sharded", "gathered"]
AtEnd = Callable[[], None]


class Target(ABC):
    """A model, and the ranks that train it.

    Args:
        model: the model.
        group: the ranks that have one row each.
        everyone: all ranks that train the model; by default those of `group`.
        shards: the ranks that hold one row together; None if each rank has a row of its own.

    Attributes:
        choices: what can be one row; the first is the default.
        combines_buffers: whether the guard combines the buffers of the ranks.
        has_copies: whether every row has a copy of the parameters, which can be compared.
        device: where the tensors live.
    """

    choices: ClassVar[tuple[Per, ...]]
    combines_buffers: ClassVar[bool] = True
    has_copies: ClassVar[bool] = True

    def __init__(
        self,
        model: nn.Module,
        group: dist.ProcessGroup,
        everyone: dist.ProcessGroup | None = None,
        shards: dist.ProcessGroup | None = None,
    ) -> None:
        self.model, self.group, self.shards = model, group, shards
        self.everyone = group if everyone is None else everyone
        self.device = next(model.parameters()).device
        # DistributedDataParallel leaves these to each rank.
        self._ignored = {f"module.{name}" for name in getattr(model, "parameters_to_ignore", ())}

    @abstractmethod
    def attach(self, guard: Guard, per: Per, at_end: AtEnd) -> None:
        """Let the guard reduce the gradients; `at_end` is to be called at the end of every step."""

    def positions(self) -> list[int]:
        """[n] the positions in `everyone` of the ranks of `group`."""
        ranks = dist.get_process_group_ranks(self.group)
        return [dist.get_group_rank(self.everyone, rank) for rank in ranks]

    @property
    def shard(self) -> int:
        """Which part of its row this rank holds."""
        return 0 if self.shards is None else self.shards.rank()

    def use_own_group(self) -> None:
        """Replace the group by another one of the same ranks, with the same timeout."""
        self.group = self.everyone = dist.new_group(
            dist.get_process_group_ranks(self.group),
            timeout=self.group._get_backend(self.device).options._timeout,
            use_local_synchronization=True,
        )

    def mode(self, name: ModeName, *, is_on_one_host: bool) -> Mode:
        """How the rows of this model are brought together."""
        if name == "gathered":  # the row of a node is spread over its shards
            return Gathered(self.group, self.shards, self.device)
        return Sharded(self.group, self.everyone, self.device, is_on_one_host=is_on_one_host)

    def parameters(self) -> list[Tensor]:
        """This rank's copies of the parameters, or its shards of them."""
        named = self.model.named_parameters()
        chosen = [one for name, one in named if name not in self._ignored]
        return [one.to_local() if isinstance(one, DTensor) else one for one in chosen]

    def buffers(self) -> list[Tensor]:
        """This rank's buffers, which modules may replace."""
        return [one for name, one in self.model.named_buffers() if name not in self._ignored]


@final
class Wrapped(Target):
    """A model in DistributedDataParallel."""

    choices = ("model", "bucket")

    def __init__(self, model: DistributedDataParallel) -> None:
        super().__init__(model, model.process_group)
        self._wrapper = model

    def attach(self, guard: Guard, per: Per, at_end: AtEnd) -> None:
        # The guard combines the buffers itself, at the end of every backward pass.
        self._wrapper.broadcast_buffers = False
        make = BucketReducer if per == "model" else SingleBucketReducer
        self._wrapper.register_comm_hook(make(guard, at_end), guarded)


@final
class ShardedUnits(Target):
    """A model that `fully_shard` has sharded over all ranks."""

    choices = ("unit",)
    combines_buffers = False
    has_copies = False

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model, _mesh_of(model).get_group())

    def attach(self, guard: Guard, per: Per, at_end: AtEnd) -> None:
        steps = UnitSteps(guard, at_end)
        for module in _units(self.model, guard):
            module.set_custom_reduce_scatter(UnitReduceScatter(steps))  # type: ignore[arg-type]
        steps.watch(self.model)


@final
class ShardedNodes(Target):
    """A model that `fully_shard` has sharded within each of several nodes."""

    choices = ("unit",)
    combines_buffers = False

    def __init__(self, model: nn.Module, nodes: Nodes) -> None:
        group = nodes.get_group() if isinstance(nodes, DeviceMesh) else nodes
        everyone, shards = dist.distributed_c10d._get_default_group(), _mesh_of(model).get_group()
        check_nodes(group, shards, everyone)
        super().__init__(model, group, everyone, shards)

    def attach(self, guard: Guard, per: Per, at_end: AtEnd) -> None:
        steps = UnitSteps(guard, at_end)
        for module in _units(self.model, guard):
            module.set_all_reduce_hook(NodeReducer(steps))
        steps.watch(self.model)


@final
class Plain(Target):
    """A plain module, whose gradients are reduced before its optimizer's steps."""

    choices = ("model",)

    def __init__(self, model: nn.Module, optimizer: Optimizer) -> None:
        if GradientReducer.is_attached_to(optimizer):
            raise failure("optimizer", "have no guard yet", "one")
        super().__init__(model, dist.distributed_c10d._get_default_group())
        self._optimizer = optimizer

    def attach(self, guard: Guard, per: Per, at_end: AtEnd) -> None:
        self._optimizer.register_step_pre_hook(GradientReducer(guard, self.model, at_end))


def target_of(model: nn.Module, optimizer: Optimizer | None, nodes: Nodes | None) -> Target:
    """The model as a target, if a guard can be put on it."""
    check_arguments(model, optimizer, nodes)
    check_model(model)
    if isinstance(model, DistributedDataParallel):
        return Wrapped(model)
    if isinstance(model, FSDPModule):
        return ShardedUnits(model) if nodes is None else ShardedNodes(model, nodes)
    assert optimizer is not None
    return Plain(model, optimizer)


def _mesh_of(model: nn.Module) -> DeviceMesh:
    """The mesh of a model that `fully_shard` was applied to."""
    return next(p.device_mesh for p in model.parameters() if isinstance(p, DTensor))


def _units(model: nn.Module, guard: Guard) -> Iterator[FSDPModule]:
    """The units of the model, which name a rank that is missing when they gather parameters."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_custom_all_gather(UnitAllGather(guard))  # type: ignore[arg-type]
            yield module
