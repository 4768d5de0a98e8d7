"""Collectives in the words of rows: sums over holders of columns, and tensors of all ranks."""

from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor

# The first name is that of torch 2.13, where the second one warns.
_all_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


def all_gather(tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
    """[n, ...] the tensors of all ranks, of one shape."""
    tensor = tensor.contiguous()
    found = tensor.new_empty(group.size(), *tensor.shape)
    _all_gather(found.view(-1), tensor.view(-1), group=group)
    return found


def start_all_gather(found: Tensor, tensor: Tensor, group: dist.ProcessGroup) -> dist.Work:
    """Begin to write the tensors [m] of all ranks to `found` [n * m]."""
    work: dist.Work = _all_gather(found, tensor, group=group, async_op=True)
    return work


@final
class GroupHolders:
    """The ranks of a process group as holders of some columns each.

    Every method is one small collective, whose result is the same to the bit on every rank.

    Args:
        group: the ranks.
        device: where the tensors of the group's collectives live.
    """

    def __init__(self, group: dist.ProcessGroup, device: torch.device) -> None:
        self._group, self._device = group, device

    def sum(self, partial: Tensor) -> Tensor:
        total = partial.to(self._device, copy=True)
        dist.all_reduce(total, group=self._group)
        return total.to(partial.device)

    def max(self, partial: Tensor) -> Tensor:
        # What a maximum makes of NaN depends on the backend and on the order of the ranks.
        lost = partial.isnan()
        both = torch.stack([partial.where(~lost, -torch.inf), lost.to(partial.dtype)])
        both = both.to(self._device)
        dist.all_reduce(both, op=dist.ReduceOp.MAX, group=self._group)
        return both[0].where(both[1] == 0, torch.nan).to(partial.device)

    def all(self, flag: bool) -> bool:
        found = torch.tensor(float(flag), device=self._device)
        dist.all_reduce(found, op=dist.ReduceOp.MIN, group=self._group)
        return bool(found)
