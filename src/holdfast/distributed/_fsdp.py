"""The guard of `fully_shard`: a reduce-scatter for ranks, a hook after it for nodes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor

from holdfast.checks import failure
from holdfast.distributed._guard import Guard


@final
class UnitSteps:
    """Tells the units of one step from those of the next: a forward pass lies between them.

    Args:
        guard: reduces.
        at_end: called at the end of every step, before the next forward pass.
    """

    def __init__(self, guard: Guard, at_end: Callable[[], None]) -> None:
        self.guard, self._at_end = guard, at_end
        self._is_open = False

    @contextmanager
    def unit(self) -> Iterator[Guard]:
        """The guard, for the collectives of one unit."""
        guard = self.guard
        if not self._is_open:
            guard.roll.beat(guard.n_steps)
            self._is_open = True
        with guard.roll.naming(guard.n_steps):
            yield guard

    def before_forward(self, *_: object) -> None:
        """The forward pre-hook of the model."""
        if self._is_open:
            self._is_open = False
            self.guard.end_step()
            self._at_end()


@final
class UnitReduceScatter:
    """Reduces one unit of `fully_shard` by the rule, and leaves each rank its shard."""

    def __init__(self, steps: UnitSteps) -> None:
        self._steps = steps

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Memory for a collective."""
        return torch.empty(*size, dtype=dtype, device=device)

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
            rows = guard.mode.send(input_tensor).wait()
            shard = guard.mode.shard(guard.reduce([rows], zero_is_absent=False))
        torch.mul(shard, factor, out=output_tensor)


@final
class NodeReducer:
    """Reduces the shards of one unit over the nodes, each of which has averaged its own ranks."""

    def __init__(self, steps: UnitSteps) -> None:
        self._steps = steps

    def __call__(self, shard: Tensor) -> None:
        """Replace the shard of this node by that of the aggregate of all nodes."""
        with self._steps.unit() as guard:
            sent = guard.mode.send(shard)
            columns = guard.reduce([sent.wait()], zero_is_absent=False)
            shard.copy_(guard.mode.whole(columns, sent.size))


def _factor(op: Any, n: int) -> float:
    """What turns a mean over n ranks into the result of the operation."""
    if op == dist.ReduceOp.AVG:
        return 1.0
    if op == dist.ReduceOp.SUM:
        return float(n)
    requirement = "be reduced by AVG or SUM (without `set_gradient_divide_factor`)"
    raise failure("model", requirement, op)
