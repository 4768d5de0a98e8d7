"""The guard of a plain replicated module: a hook before the optimizer's step."""

from collections.abc import Callable
from functools import reduce
from typing import Any, final

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from holdfast.checks import failure
from holdfast.distributed._guard import Guard


@final
class GradientReducer:
    """Replaces `p.grad` of every parameter by the aggregate over the ranks, at every step.

    Args:
        guard: reduces.
        model: the module of this rank.
        at_end: called at the end of every step.
    """

    def __init__(self, guard: Guard, model: nn.Module, at_end: Callable[[], None]) -> None:
        self._guard, self._at_end = guard, at_end
        self._parameters = [p for p in model.parameters() if p.requires_grad]

    @staticmethod
    def is_attached_to(optimizer: Optimizer) -> bool:
        """Whether a reducer begins the steps of the optimizer."""
        hooks = optimizer._optimizer_step_pre_hooks.values()
        return any(isinstance(hook, GradientReducer) for hook in hooks)

    @torch.no_grad()
    def __call__(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Reduce the gradients before a step of the optimizer."""
        guard, parameters = self._guard, self._parameters
        if any(callable(value) for value in (*args[1:], kwargs.get("closure"))):
            # The gradients of a closure would come after the rule.
            raise failure("optimizer", "be stepped without a closure", "one")
        if any(p.grad is not None and p.grad.layout is not torch.strided for p in parameters):
            raise failure("model", "have dense gradients (sparse=False)", "a sparse gradient")
        guard.begin_step()
        with guard.roll.naming(guard.n_steps):
            used = self._used_anywhere()
            if not used:
                return
            dtype = reduce(torch.promote_types, [parameter.dtype for parameter in used])
            parts = [p.new_zeros(p.shape) if p.grad is None else p.grad for p in used]
            vector = torch.cat([part.flatten().to(dtype) for part in parts])
            whole = guard.reduce_vector(vector, zero_is_absent=True)
            self._at_end()
        for parameter, part in zip(used, whole.split([p.numel() for p in used]), strict=True):
            value = part.view(parameter.shape).to(parameter.dtype)
            if parameter.grad is None:
                parameter.grad = value.clone()
            else:
                parameter.grad.copy_(value)
        guard.end_step()

    def _used_anywhere(self) -> list[nn.Parameter]:
        """The parameters that have a gradient on some rank: the same list on every rank."""
        flags = [float(parameter.grad is not None) for parameter in self._parameters]
        found = torch.tensor(flags, device=self._parameters[0].device)
        dist.all_reduce(found, op=dist.ReduceOp.MAX, group=self._guard.mode.group)
        return [p for p, flag in zip(self._parameters, found.tolist(), strict=True) if flag]
