"""The two ways to bring the rows of all ranks together: in shards, or whole on every rank."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import torch
import torch.distributed as dist
from torch import Tensor

from holdfast.distributed._collectives import (
    Broadcasts,
    GroupHolders,
    Pending,
    PiecewiseExchange,
    start_all_gather,
)
from holdfast.distributed._memory import Memory
from holdfast.geometry import ALONE, Holders


@dataclass(frozen=True, eq=False)
class Sent:
    """A vector of this rank that is on its way.

    Attributes:
        rows: [n, c] all ranks' values of the columns that this rank will hold; after `wait`.
        size: number of entries of the vector.
        work: the collective.
        vector: what is being sent, with zeros at its end if it had to be longer.
    """

    rows: Tensor
    size: int
    work: Pending
    vector: Tensor

    def wait(self) -> Tensor:
        """The rows, once they are there."""
        self.work.wait()
        return self.rows


class Mode(ABC):
    """How one vector per rank becomes rows, and the aggregate one vector on every rank.

    Args:
        group: the ranks that have one row each.
        holders: the ranks that hold columns of these rows; None if each holds them all.
        device: where the tensors live.
    """

    def __init__(
        self, group: dist.ProcessGroup, holders: dist.ProcessGroup | None, device: torch.device
    ) -> None:
        self.group, self.n, self.rank = group, group.size(), group.rank()
        self.holders: Holders = ALONE if holders is None else GroupHolders(holders, device)
        self._n_holders = 1 if holders is None else holders.size()

    @abstractmethod
    def n_columns(self, size: int) -> int:
        """The number of columns of all holders, if each rank sends vectors of this size in all."""

    @abstractmethod
    def send(self, vector: Tensor) -> Sent:
        """Begin to send this rank's vector [m]."""

    @abstractmethod
    def whole(self, columns: Tensor, sent: Sent) -> Tensor:
        """The vector [size] of which this rank has computed its `columns` [c].

        It may take the place of the vector that was sent. The rows are gone.
        """

    @abstractmethod
    def shard(self, columns: Tensor, sent: Sent, out: Tensor) -> None:
        """Write the n-th part of the vector that belongs to this rank to `out`.

        The rows are gone.
        """


@final
class Sharded(Mode):
    """Every rank holds all rows of its share of the columns: about the traffic of an all-reduce.

    Each rank reduces its own columns, and the others trust its result.
    """

    def __init__(
        self,
        group: dist.ProcessGroup,
        holders: dist.ProcessGroup,
        device: torch.device,
        *,
        is_on_one_host: bool = True,
    ) -> None:
        super().__init__(group, holders, device)
        self._memory, self._is_on_one_host = Memory(), is_on_one_host
        # The all-gather of gloo goes through memory of its own, and takes three times as long as a
        # broadcast from every rank, to which columns of unequal number are no matter. That of nccl
        # is a ring.
        self._has_slow_all_gather = dist.get_backend(group) == "gloo"

    def n_columns(self, size: int) -> int:
        return self._n_holders // self.n * size

    def send(self, vector: Tensor) -> Sent:
        size = vector.numel()
        if size % self.n and (size < self.n or not self._has_slow_all_gather):
            vector = torch.nn.functional.pad(vector, (0, -size % self.n))
        width = len(vector.tensor_split(self.n)[self.rank])
        rows = self._memory.take(self.n * width, vector).view(self.n, width)
        return Sent(rows, size, self._start_exchange(rows, vector), vector)

    def whole(self, columns: Tensor, sent: Sent) -> Tensor:
        self._start_gather(sent.vector, columns).wait()
        self._memory.give_back(sent.rows)
        return sent.vector[: sent.size]

    def shard(self, columns: Tensor, sent: Sent, out: Tensor) -> None:
        out.copy_(columns)
        self._memory.give_back(sent.rows)

    def _start_exchange(self, rows: Tensor, vector: Tensor) -> Pending:
        """Begin to send the parts of the vector to the ranks, and to write theirs to `rows`.

        Each rank holds as many columns as the others, or one more.
        """
        parts = vector.tensor_split(self.n)
        if self._has_slow_all_gather and not self._is_on_one_host:
            return PiecewiseExchange(rows.unbind(), parts, self.group)
        sizes = [rows.shape[1]] * self.n, [len(part) for part in parts]
        work: dist.Work = dist.all_to_all_single(
            rows.view(-1), vector, *sizes, group=self.group, async_op=True
        )
        return work

    def _start_gather(self, vector: Tensor, columns: Tensor) -> Pending:
        """Begin to send this rank's columns to all ranks, and to write theirs to the vector."""
        if not self._has_slow_all_gather:
            return start_all_gather(vector, columns, self.group)
        parts = vector.tensor_split(self.n)
        if self._is_on_one_host:
            return Broadcasts(parts, columns, self.group)
        return PiecewiseExchange(parts, [columns] * self.n, self.group)


@final
class Gathered(Mode):
    """Every rank holds all rows whole, and trusts no other rank's sums: n times the traffic."""

    def send(self, vector: Tensor) -> Sent:
        vector = vector.contiguous()
        rows = vector.new_empty(self.n * vector.numel())
        work = start_all_gather(rows, vector, self.group)
        return Sent(rows.view(self.n, -1), vector.numel(), work, vector)

    def n_columns(self, size: int) -> int:
        return self._n_holders * size

    def whole(self, columns: Tensor, sent: Sent) -> Tensor:
        return columns

    def shard(self, columns: Tensor, sent: Sent, out: Tensor) -> None:
        out.copy_(columns.chunk(self.n)[self.rank])
