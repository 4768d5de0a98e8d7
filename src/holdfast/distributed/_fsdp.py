"""The guard of `fully_shard`: a reduce-scatter for ranks, a hook after it for nodes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from holdfast.checks import failure
from holdfast.distributed._collectives import start_all_gather
from holdfast.distributed._guard import Guard


@final
class UnitSteps:
    """Tells the units of one step from those of the next: the end of a backward pass is between.

    Args:
        guard: reduces.
        at_end: called at the end of every step.
    """

    def __init__(self, guard: Guard, at_end: Callable[[], None]) -> None:
        self.guard, self._at_end = guard, at_end
        self._is_open = False
        self._will_end = False

    def watch(self, model: nn.Module) -> None:
        """Learn of the forward and backward passes of the model."""
        model.register_forward_pre_hook(self._before_forward)
        model.register_forward_hook(self._after_forward)

    @contextmanager
    def unit(self) -> Iterator[Guard]:
        """The guard, for the collectives of one unit."""
        guard = self.guard
        if not self._is_open:
            guard.begin_step()
            self._is_open = True
            self._call_at_end()  # if the forward pass was not one of the whole model
        with guard.roll.naming(guard.n_steps):
            yield guard

    def _before_forward(self, *_: object) -> None:
        # A backward pass that has failed did not reach its end.
        self._is_open = self._will_end = False

    def _after_forward(self, model: nn.Module, inputs: object, output: object) -> None:
        if not torch.is_grad_enabled():
            return
        for leaf in tree_leaves(output):
            if isinstance(leaf, Tensor) and leaf.requires_grad:
                # In the outermost backward pass; units under reentrant checkpoints have others.
                leaf.register_hook(lambda _: self._call_at_end())

    def _call_at_end(self) -> None:
        if not self._will_end:
            self._will_end = True
            # The callback of fully_shard, which reduces the first units, was queued before.
            torch.autograd.Variable._execution_engine.queue_callback(self._end)

    def _end(self) -> None:
        was_open, self._is_open, self._will_end = self._is_open, False, False
        if was_open:
            with self.guard.roll.naming(self.guard.n_steps):
                self._at_end()
            self.guard.end_step()


class UnitCollective:
    """A collective of one unit in fresh memory."""

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Memory for the collective."""
        return torch.empty(*size, dtype=dtype, device=device)


@final
class UnitAllGather(UnitCollective):
    """Gathers the parameters of one unit as `fully_shard` does, and names missing ranks."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Write the shards of all ranks to `output_tensor`."""
        with self._guard.roll.naming(self._guard.n_steps):
            work = start_all_gather(output_tensor, input_tensor, group)
            # Collectives of a GPU fail elsewhere, and must not be waited for here.
            if async_op and output_tensor.device.type != "cpu":
                return work
            work.wait()
        return None


@final
class UnitReduceScatter(UnitCollective):
    """Reduces one unit of `fully_shard` by the rule, and leaves each rank its shard."""

    def __init__(self, steps: UnitSteps) -> None:
        self._steps = steps

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> None:
        """Write this rank's shard of the aggregate of all `input_tensor`s to `output_tensor`."""
        factor = _factor(op, group.size())
        with self._steps.unit() as guard:
            sent = guard.mode.send(input_tensor)
            columns = guard.reduce([sent.wait()], size=sent.size, zero_is_absent=False)
            guard.mode.shard(columns, sent, out=output_tensor)
        if factor != 1.0:
            output_tensor.mul_(factor)


@final
class NodeReducer:
    """Reduces the shards of one unit over the nodes, each of which has averaged its own ranks."""

    def __init__(self, steps: UnitSteps) -> None:
        self._steps = steps

    def __call__(self, shard: Tensor) -> None:
        """Replace the shard of this node by that of the aggregate of all nodes."""
        with self._steps.unit() as guard:
            whole = guard.reduce_vector(shard, zero_is_absent=False)
            if whole.data_ptr() != shard.data_ptr():
                shard.copy_(whole)


def _factor(op: Any, n: int) -> float:
    """What turns a mean over n ranks into the result of the operation."""
    if op == dist.ReduceOp.AVG:
        return 1.0
    if op == dist.ReduceOp.SUM:
        return float(n)
    requirement = "be reduced by AVG or SUM (without `set_gradient_divide_factor`)"
    raise failure("model", requirement, op)
