"""Parameters and buffers that all ranks must have in common."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, final

import torch
import torch.distributed as dist
from torch import Tensor

from holdfast.distributed._collectives import Channel, all_gather
from holdfast.distributed._roll_call import Member
from holdfast.distributed._testimony import Digest, describe_dispute
from holdfast.errors import RanksDifferError
from holdfast.geometry import median_of_rows

OnMismatch = Literal["warn", "raise", "copy"]

CHUNK = 2**20
"""Numbers that are converted at a time for a checksum."""

MIXER = 0x9E3779B97F4A7C15
"""An odd factor with bits everywhere, so that chunks do not cancel each other."""

log = logging.getLogger("holdfast")


@final
@dataclass(frozen=True, eq=False)
class Replicas:
    """Parameters of which every row has a copy, compared by checksums.

    A rule reads gradients, not parameters: a rank whose parameters were changed by a fault sends
    honest gradients of another model.

    Args:
        parameters: the parameters of this rank, or its shards of them.
        group: the ranks that must have the same ones.
        everyone: all ranks that train the model, so that all of them come to the same decision.
        shard: which of the shards this rank has; 0 if every rank has all parameters.
        members: the names of everyone.
        on_mismatch: "warn" logs the ranks that differ from the majority, "raise" raises an error on
            every rank, "copy" gives every rank the parameters of the majority.
        device: where messages live.
    """

    parameters: Sequence[Tensor]
    group: dist.ProcessGroup
    everyone: dist.ProcessGroup
    shard: int
    members: Sequence[Member]
    on_mismatch: OnMismatch
    device: torch.device

    @torch.no_grad()
    def check(self) -> list[int]:
        """Compare the parameters of all ranks; returns the ranks that differ from the majority."""
        # A gather over everyone, although only equal shards are compared: if some ranks raised an
        # error and others did not, these would wait for them.
        own = torch.tensor([checksum(self.parameters), self.shard])
        found = self._from_all(own, self.everyone, self.members).tolist()
        usual: dict[int, int] = {}
        for shard in sorted({entry[1] for entry in found}):
            sums = [entry[0] for entry in found if entry[1] == shard]
            usual[shard], n_equal = Counter(sums).most_common(1)[0]
            if 2 * n_equal <= len(sums) and n_equal < len(sums):
                raise RanksDifferError("no majority of the ranks has the same parameters.")
        different = [i for i, (total, shard) in enumerate(found) if total != usual[shard]]
        if not different:
            return []
        names = ", ".join(str(self.members[i]) for i in different)
        message = f"parameters of {names} differ from those of the other ranks"
        if self.on_mismatch == "raise":
            raise RanksDifferError(f"{message}.")
        if self.on_mismatch == "copy":
            self._copy([entry[0] == usual[self.shard] for entry in found])
            message += "; they were replaced by those of the majority"
        log.warning("%s", message)
        return different

    def _copy(self, are_usual: list[bool]) -> None:
        """Give the ranks of the group that differ the parameters of the majority.

        Other parameters with the usual checksum are easy to make, so that what is copied must have
        the digest of the majority. Nothing is written before that is known, and nothing at all on
        ranks that have these parameters already: a liar who hands them out would reach everyone.
        """
        ranks = dist.get_process_group_ranks(self.group)
        positions = [dist.get_group_rank(self.everyone, rank) for rank in ranks]
        own = Digest(*self.parameters).value()
        members = [self.members[at] for at in positions]
        digest = torch.frombuffer(bytearray(own), dtype=torch.uint8)
        sent = self._from_all(digest, self.group, members)
        digests = {at: bytes(row) for at, row in zip(positions, sent.tolist(), strict=True)}
        trusted = {at: digest for at, digest in digests.items() if are_usual[at]}
        usual, n_equal = Counter(trusted.values()).most_common(1)[0]
        if 2 * n_equal <= len(trusted):
            raise RanksDifferError("no majority of the ranks has the same parameters.")
        source = next(at for at, digest in trusted.items() if digest == usual)
        found, copies = Digest(), []
        for parameter in self.parameters:
            copy = parameter.detach().clone(memory_format=torch.contiguous_format)
            dist.broadcast(copy, ranks[positions.index(source)], group=self.group)
            found.add(copy)
            if own != usual:
                copies.append(copy)
        if found.value() != usual:
            raise RanksDifferError(f"{self.members[source]} sent other parameters than it has.")
        if own != usual:
            for parameter, copy in zip(self.parameters, copies, strict=True):
                parameter.copy_(copy)

    def _from_all(self, own: Tensor, group: dist.ProcessGroup, members: Sequence[Member]) -> Tensor:
        """[n, m] the tensors [m] of all ranks, if each has sent the same to all of them.

        Otherwise all ranks raise an error: if they came to different decisions, they would enter
        different collectives, and take the messages of one for those of another.
        """
        found = self._gathered(own, group)
        if self.on_mismatch == "warn":  # nothing else follows from them
            return found
        tables = self._gathered(found.flatten(), group).view(len(found), *found.shape)
        received = [[bytes(row) for row in table.view(torch.uint8).tolist()] for table in tables]
        dispute = describe_dispute(members, received)
        if dispute:
            raise RanksDifferError(f"the parameters were not compared: {dispute}.")
        return found

    def _gathered(self, own: Tensor, group: dist.ProcessGroup) -> Tensor:
        """[n, m] the tensors [m] of all ranks, which no other rank has had in its hands."""
        message = own.view(torch.uint8).to(self.device)
        # No matter how many hosts there are, for so short a message.
        channel = Channel(len(message), group, self.device, is_on_one_host=True)
        return channel.send(message).cpu().view(own.dtype)


@final
class SharedBuffers:
    """Buffers such as running statistics, combined over the ranks by the coordinate median.

    Copying those of rank 0, as DistributedDataParallel does, would let a bad rank 0 bypass every
    rule.

    Args:
        buffers: those of this rank; read anew at every step, because modules may replace them.
        group: the ranks.
    """

    def __init__(self, buffers: Callable[[], Iterable[Tensor]], group: dist.ProcessGroup) -> None:
        self._buffers, self._group = buffers, group

    @torch.no_grad()
    def combine(self) -> None:
        """Write the medians over the ranks to the buffers."""
        self.write(self.medians())

    @torch.no_grad()
    def medians(self) -> list[tuple[Tensor, Tensor]]:
        """Every buffer with its median over the ranks."""
        found = []
        by_dtype: dict[torch.dtype, list[Tensor]] = {}
        for buffer in self._buffers():
            if buffer.dtype != torch.bool and not buffer.is_complex() and buffer.numel():
                by_dtype.setdefault(buffer.dtype, []).append(buffer)
        for buffers in by_dtype.values():
            own = torch.cat([buffer.flatten() for buffer in buffers])
            # As bytes, because gloo does not know every dtype.
            values = all_gather(own.view(torch.uint8), self._group).view(own.dtype)
            sizes = [buffer.numel() for buffer in buffers]
            if bool(torch.isfinite(values).all()):  # all buffers at once, with the same result
                parts = list(_median(values).split(sizes))
            else:
                parts = [_median(part) for part in values.split(sizes, dim=1)]
            pairs = zip(buffers, parts, strict=True)
            found += [(buffer, part.view_as(buffer)) for buffer, part in pairs]
        return found

    @staticmethod
    @torch.no_grad()
    def write(medians: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Write the medians to their buffers."""
        for buffer, median in medians:
            # A buffer that was saved for a backward pass must not be written without need.
            if not median.equal(buffer):
                buffer.copy_(median)


def _median(values: Tensor) -> Tensor:
    """[m] medians of `values` [n, m]; the lower ones if most rows are not finite."""
    # Infinity may be meant, as in masks; NaN sorts behind it.
    lower = values.sort(0).values[(len(values) - 1) // 2]
    return median_of_rows(values, lower)


def checksum(tensors: Iterable[Tensor]) -> int:
    """A 64-bit sum over the bits of all numbers, each times its odd position.

    Notices every change of one or two bits, and every two numbers exchanged, within 2**20 numbers.
    `torch.hash_tensor` is an exclusive or: it misses numbers that were exchanged, and bits that
    were flipped twice.
    """
    total = 0
    for tensor in tensors:
        flat = tensor.detach().flatten()
        # In 64 bits, two flipped signs would be a multiple of 2**64.
        bits = flat.view({1: torch.int8, 2: torch.int16}.get(flat.element_size(), torch.int32))
        for at, chunk in enumerate(bits.split(CHUNK)):
            first = 2 * at * CHUNK + 1
            odd = torch.arange(first, first + 2 * len(chunk), 2, device=chunk.device)
            total = (MIXER * total + int((chunk.to(torch.int64) * odd).sum())) % 2**64
    return total - 2**64 if total >= 2**63 else total
