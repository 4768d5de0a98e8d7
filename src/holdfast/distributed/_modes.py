"""The two ways in which the rows of all ranks meet: in shards, or whole on every rank."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import torch
import torch.distributed as dist
from torch import Tensor

from holdfast.distributed._collectives import GroupHolders, all_gather, start_all_gather
from holdfast.geometry import ALONE, Holders


@dataclass(frozen=True, eq=False)
class Sent:
    """A vector of this rank that is on its way.

    Attributes:
        rows: [n, c] all ranks' values of the columns that this rank will hold; after `wait`.
        size: number of entries of the vector.
        work: the collective.
        vector: what is being sent, which must live until then.
    """

    rows: Tensor
    size: int
    work: dist.Work
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

    def n_columns(self, d: int) -> int:
        """The number of columns of all holders, of which each has d."""
        return self._n_holders * d

    @abstractmethod
    def send(self, vector: Tensor) -> Sent:
        """Begin to send this rank's vector [m]."""

    @abstractmethod
    def whole(self, columns: Tensor, size: int) -> Tensor:
        """The vector [size] of which this rank has computed its `columns` [c]."""

    @abstractmethod
    def shard(self, columns: Tensor) -> Tensor:
        """The n-th part of the vector that belongs to this rank, from the same columns."""


@final
class Sharded(Mode):
    """Every rank holds all rows of its share of the columns: about the traffic of an all-reduce.

    Each rank reduces its own columns, and the others take its word for them.
    """

    def send(self, vector: Tensor) -> Sent:
        size = vector.numel()
        width = -(-size // self.n)
        padded = vector
        if self.n * width != size:
            padded = torch.nn.functional.pad(vector, (0, self.n * width - size))
        rows = torch.empty_like(padded)
        work = dist.all_to_all_single(rows, padded, group=self.group, async_op=True)
        return Sent(rows.view(self.n, width), size, work, padded)

    def whole(self, columns: Tensor, size: int) -> Tensor:
        return all_gather(columns, self.group).view(-1)[:size]

    def shard(self, columns: Tensor) -> Tensor:
        return columns


@final
class Gathered(Mode):
    """Every rank holds all rows whole, and trusts no other rank's sums: n times the traffic."""

    def send(self, vector: Tensor) -> Sent:
        vector = vector.contiguous()
        rows = vector.new_empty(self.n * vector.numel())
        work = start_all_gather(rows, vector, self.group)
        return Sent(rows.view(self.n, -1), vector.numel(), work, vector)

    def whole(self, columns: Tensor, size: int) -> Tensor:
        return columns

    def shard(self, columns: Tensor) -> Tensor:
        return columns.chunk(self.n)[self.rank]
