"""Collectives in the words of rows: sums over holders of columns, and tensors of all ranks."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, final

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


PIECE = 2**18
"""Bytes that one rank sends to another before it turns to the next one."""

RECEIPT = 1
"""The tag of messages that say that everything has arrived."""

SMALL = 2**12
"""Up to so many numbers, to send all of them to every rank costs no more than one message does."""


class Pending(Protocol):
    """A collective that was begun."""

    def wait(self) -> object: ...


@final
class PiecewiseExchange:
    """An all-to-all of gloo over a network, in pieces, begun at once.

    The all-to-all of gloo itself sends all ranks whole vectors, some of which wait for others on
    the way: between 4 hosts with 1 Gbit/s it takes 1.4 times as long. Within one host, where
    nothing has to wait, it is a fifth faster than this.

    Args:
        found: n vectors, for what comes from each rank.
        given: what goes to each rank.
        group: the ranks.
    """

    def __init__(
        self, found: Sequence[Tensor], given: Sequence[Tensor], group: dist.ProcessGroup
    ) -> None:
        n, rank = group.size(), group.rank()
        self._group, self._others = group, [(rank + distance) % n for distance in range(1, n)]
        found[rank].copy_(given[rank])
        received, sent = [_pieces(one) for one in found], [_pieces(one) for one in given]
        self._receiving, self._sending = [], []
        for turn in range(max(len(pieces) for pieces in [*received, *sent])):
            for target, source in zip(self._others, reversed(self._others), strict=True):
                if turn < len(received[source]):
                    piece = received[source][turn]
                    self._receiving.append(dist.irecv(piece, group=group, group_src=source))
                if turn < len(sent[target]):
                    piece = sent[target][turn]
                    self._sending.append(dist.isend(piece, group=group, group_dst=target))
        self._receipts = [
            dist.irecv(torch.empty(1), group=group, group_src=source, tag=RECEIPT)
            for source in self._others
        ]

    def wait(self) -> None:
        # If a connection is closed, gloo ends the messages that this rank waits for, except for one
        # that is half received, and none of those that it sends. Hence the last ones are asked
        # first, and every rank says that it has everything, before this one asks what it has sent.
        _wait(reversed(self._receiving))
        receipt = torch.zeros(1)
        saying = [
            dist.isend(receipt, group=self._group, group_dst=target, tag=RECEIPT)
            for target in self._others
        ]
        _wait([*self._receipts, *saying, *self._sending])


def _pieces(vector: Tensor) -> list[Tensor]:
    """The pieces of a vector; the last one is a single number, which is hardly ever cut in two."""
    size = max(1, PIECE // vector.element_size())
    return [*(vector[:-1].split(size) if len(vector) > 1 else ()), vector[-1:]]


def _wait(works: Iterable[dist.Work | None]) -> None:
    for work in works:
        assert work is not None  # this rank is in the group
        work.wait()


@final
class Broadcasts:
    """A broadcast from every rank, all of them begun at once.

    An all-to-all would need the same vector n times in memory, and takes 1.5 times as long within
    one host. Between hosts, what passes through other hosts on its way takes twice as long.

    Args:
        found: n vectors, for what comes from each rank.
        given: what goes to all ranks.
        group: the ranks.
    """

    def __init__(self, found: Sequence[Tensor], given: Tensor, group: dist.ProcessGroup) -> None:
        found[group.rank()].copy_(given)
        self._works = [
            dist.broadcast(one, group=group, group_src=source, async_op=True)
            for source, one in enumerate(found)
        ]

    def wait(self) -> None:
        _wait(self._works)


@final
class Channel:
    """Messages of one size from every rank to every other, each over a connection of its own.

    An all-gather would pass values on from rank to rank, so that a rank on the way could change
    those of others. Here a rank has only its own message in its hands.

    Args:
        size: bytes of a message, a multiple of 8.
        group: the ranks.
        device: where the messages live.
        is_on_one_host: whether all ranks are on one machine.
    """

    def __init__(
        self, size: int, group: dist.ProcessGroup, device: torch.device, *, is_on_one_host: bool
    ) -> None:
        self.size, self._group = size, group
        # Kept, because fresh pages of the system take longer than the messages.
        self._given = torch.empty(group.size(), size, dtype=torch.uint8, device=device)
        self._found = torch.empty_like(self._given)
        self._in_pieces = dist.get_backend(group) == "gloo" and not is_on_one_host

    def send(self, message: Tensor) -> Tensor:
        """[n, size] the messages of all ranks; overwritten by the next call."""
        self._given[:] = message
        if self._in_pieces:
            PiecewiseExchange(list(self._found), list(self._given), self._group).wait()
        else:
            dist.all_to_all_single(self._found, self._given, group=self._group)
        return self._found

    @property
    def bytes_sent(self) -> int:
        """Bytes that a rank sends to the others per message, without headers."""
        return (self._group.size() - 1) * self.size


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
        # An all-reduce of gloo takes many turns between threads of all ranks, whatever its size. On
        # two cores, 4 ranks: 4 ms, where everything to everybody takes 0.7 ms; 8 ranks: 25 and 6.
        self._has_slow_all_reduce = dist.get_backend(group) == "gloo"

    def sum(self, partial: Tensor) -> Tensor:
        total = partial.to(self._device, copy=True)
        if self._has_slow_all_reduce and total.numel() <= SMALL:
            copies = total.expand(self._group.size(), *total.shape).contiguous()
            found = torch.empty_like(copies)
            dist.all_to_all_single(found.view(-1), copies.view(-1), group=self._group)
            total.zero_()
            for one in found:  # in the order of the ranks, so that all have the same bits
                total += one
        else:
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
