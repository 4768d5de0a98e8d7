"""Columns held by several threads, which meet wherever columns are summed."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class Meeting:
    """The holders of one set of rows; a holder that does not come breaks the barrier for all."""

    def __init__(self, n_holders: int) -> None:
        self._barrier = threading.Barrier(n_holders, timeout=20)
        self._brought: list[Any] = [None] * n_holders

    def exchange(self, rank: int, value: Any) -> list[Any]:
        self._brought[rank] = value
        self._barrier.wait()
        found = list(self._brought)
        self._barrier.wait()
        return found


class Holder:
    """One of the holders."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self._meeting, self._rank = meeting, rank

    def sum(self, partial: Tensor) -> Tensor:
        total: Tensor = reduce(torch.add, self._meeting.exchange(self._rank, partial))
        return total

    def max(self, partial: Tensor) -> Tensor:
        largest: Tensor = reduce(torch.maximum, self._meeting.exchange(self._rank, partial))
        return largest

    def all(self, flag: bool) -> bool:
        return all(self._meeting.exchange(self._rank, flag))


def on_holders(n_holders: int, function: Callable[[int, Holder], T]) -> list[T]:
    """What `function` returns to each of the holders, which run at the same time."""
    meeting = Meeting(n_holders)
    with ThreadPoolExecutor(n_holders) as pool:
        calls = [pool.submit(function, i, Holder(meeting, i)) for i in range(n_holders)]
        return [call.result() for call in calls]
