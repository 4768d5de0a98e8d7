"""A name for one start of all ranks, on which they agree through a key-value store."""

import time
import uuid
from datetime import timedelta

from torch._C._distributed_c10d import Store

from holdfast.errors import RankFailedError


def meet(store: Store, rank: int, world_size: int, timeout: timedelta, act: str) -> str:
    """A name that all ranks get, and that was never used before.

    The store may hold entries of an earlier attempt, and torchrun's count of restarts does not
    identify an attempt: torchrun on another node that lost no rank does not count the restart.
    Every rank therefore writes a new word, and rank 0 answers each word with the name. An answer to
    a word of an earlier attempt is ignored.

    Args:
        store: keeps the words; the same keys can be used again.
        rank: of this process.
        world_size: number of ranks.
        timeout: how long to wait for the others.
        act: what the ranks do together, for the error that names a missing rank.
    """
    word = uuid.uuid4().hex
    deadline = time.monotonic() + timeout.total_seconds()
    if rank == 0:
        _answer(store, word, world_size, deadline, timeout, act)
        return word
    store.set(f"word/{rank}", word)
    while time.monotonic() < deadline:
        if store.check([f"answer/{rank}"]):
            asked, _, name = store.get(f"answer/{rank}").decode().partition(" ")
            if asked == word:
                store.set(f"{name}/{rank}", "")
                return _complete(store, name, deadline, timeout, act)
        time.sleep(0.02)
    raise _absence([0], timeout, act)


def _complete(store: Store, name: str, deadline: float, timeout: timedelta, act: str) -> str:
    """The name, once rank 0 says that all have come; the same error as there if not."""
    key = f"{name}/absent"
    # Rank 0 may have begun to wait a whole timeout later.
    while not store.check([key]):
        if time.monotonic() > deadline + timeout.total_seconds():
            raise _absence([0], timeout, act)
        time.sleep(0.02)
    absent = [int(rank) for rank in store.get(key).decode().split()]
    if absent:
        raise _absence(absent, timeout, act)
    return name


def _answer(
    store: Store, name: str, world_size: int, deadline: float, timeout: timedelta, act: str
) -> None:
    """Answer all other ranks with the name, again if a rank writes a new word."""
    answered: dict[int, str] = {}
    waiting = list(range(1, world_size))
    while True:
        waiting = [rank for rank in waiting if not store.check([f"{name}/{rank}"])]
        if not waiting:
            store.set(f"{name}/absent", "")
            return
        if time.monotonic() > deadline:
            store.set(f"{name}/absent", " ".join(map(str, waiting)))
            raise _absence(waiting, timeout, act)
        for rank in waiting:
            if store.check([f"word/{rank}"]):
                word = store.get(f"word/{rank}").decode()
                if answered.get(rank) != word:
                    store.set(f"answer/{rank}", f"{word} {name}")
                    answered[rank] = word
        time.sleep(0.02)


def _absence(ranks: list[int], timeout: timedelta, act: str) -> RankFailedError:
    names = ", ".join(map(str, ranks))
    noun = "rank" if len(ranks) == 1 else "ranks"
    return RankFailedError(
        f"{noun} {names} did not {act} in {timeout.total_seconds():.0f} seconds."
    )
