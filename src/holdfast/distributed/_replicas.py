"""Parameters and buffers that all ranks must have in common."""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, final

import torch
import torch.distributed as dist
from torch import Tensor, nn

from holdfast.distributed._collectives import all_gather
from holdfast.distributed._roll_call import Member
from holdfast.errors import RanksDifferError
from holdfast.geometry import median_of_rows

OnMismatch = Literal["warn", "raise", "copy"]

CHUNK = 2**20
"""Numbers that are converted at a time for a checksum."""

log = logging.getLogger("holdfast")


@final
class Replicas:
    """Parameters of which every rank has a copy, compared by checksums.

    A rule sees gradients, not parameters: a rank whose parameters were changed by a fault goes on
    to send honest gradients of another model.

    Args:
        parameters: the parameters of this rank.
        group: the ranks.
        members: their names.
        on_mismatch: "warn" logs the ranks that differ from the majority, "raise" raises an error on
            every rank, "copy" gives every rank the parameters of the majority.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        group: dist.ProcessGroup,
        members: Sequence[Member],
        on_mismatch: OnMismatch,
    ) -> None:
        self._parameters = list(parameters)
        self._group, self._members, self._on_mismatch = group, members, on_mismatch

    @torch.no_grad()
    def check(self) -> list[int]:
        """Compare the parameters of all ranks; returns the ranks that differ from the majority."""
        device = self._parameters[0].device
        own = torch.tensor(checksum(self._parameters), dtype=torch.int64, device=device)
        sums = all_gather(own, self._group).tolist()
        usual, n_equal = Counter(sums).most_common(1)[0]
        different = [rank for rank, found in enumerate(sums) if found != usual]
        if not different:
            return []
        names = ", ".join(str(self._members[rank]) for rank in different)
        message = f"parameters of {names} differ from those of the other ranks"
        if 2 * n_equal <= len(sums):
            raise RanksDifferError("no majority of the ranks has the same parameters.")
        if self._on_mismatch == "raise":
            raise RanksDifferError(f"{message}.")
        if self._on_mismatch == "copy":
            source = dist.get_global_rank(self._group, sums.index(usual))
            for parameter in self._parameters:
                dist.broadcast(parameter, source, group=self._group)
            message += "; they were replaced by those of the majority"
        log.warning("%s", message)
        return different


@final
class SharedBuffers:
    """Buffers such as running statistics, combined over the ranks by the coordinate median.

    To copy those of rank 0, as DistributedDataParallel does, is a way past every rule for a rank 0
    that is bad.
    """

    def __init__(self, model: nn.Module, group: dist.ProcessGroup) -> None:
        self._model, self._group = model, group

    @torch.no_grad()
    def combine(self) -> None:
        """Write the medians over the ranks to the buffers."""
        by_dtype: dict[torch.dtype, list[Tensor]] = {}
        for buffer in self._model.buffers():
            if buffer.dtype != torch.bool and buffer.numel():
                by_dtype.setdefault(buffer.dtype, []).append(buffer)
        for buffers in by_dtype.values():
            values = all_gather(torch.cat([buffer.flatten() for buffer in buffers]), self._group)
            # Those of rank 0 where most are lost: then nothing is right, but all ranks have it.
            combined = median_of_rows(values, values[0])
            parts = combined.split([buffer.numel() for buffer in buffers])
            for buffer, part in zip(buffers, parts, strict=True):
                buffer.copy_(part.view_as(buffer))


def checksum(tensors: Iterable[Tensor]) -> int:
    """A 64-bit sum over the bits of all numbers, each times its odd position.

    `torch.hash_tensor` is an exclusive or: it misses numbers that were exchanged, and bits that
    were flipped twice.
    """
    total = 0
    for tensor in tensors:
        flat = tensor.detach().flatten()
        size = flat.element_size()
        bits = flat.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size])
        for at, chunk in enumerate(bits.split(CHUNK)):
            first = 2 * at * CHUNK + 1
            odd = torch.arange(first, first + 2 * len(chunk), 2, device=chunk.device)
            total = 31 * total + int((chunk.to(torch.int64) * odd).sum())
    return (total + 2**63) % 2**64 - 2**63
