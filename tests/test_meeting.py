"""Ranks agree on a name for their start, whatever an earlier start has left in the store."""

import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch._C._distributed_c10d import HashStore, Store

from holdfast.distributed._meeting import meet
from holdfast.distributed._processes import condition, place
from holdfast.errors import RankFailedError

SOON = timedelta(seconds=0.3)


def start(store: Store, ranks: range, n: int, timeout: timedelta) -> list[str | Exception]:
    """What becomes of each rank, in threads that share a store."""

    def one(rank: int) -> str | Exception:
        try:
            return meet(store, rank, n, timeout, "start")
        except RankFailedError as error:
            return error

    with ThreadPoolExecutor(len(ranks)) as threads:
        return list(threads.map(one, ranks))


def test_all_ranks_get_one_name_and_another_one_at_every_start() -> None:
    store, names = HashStore(), set()
    for _ in range(5):
        found = start(store, range(4), 4, timedelta(seconds=20))
        assert found == [found[0]] * 4
        names.add(str(found[0]))
    assert len(names) == 5


def test_a_start_that_failed_does_no_harm_to_the_next() -> None:
    store = HashStore()
    *others, last = start(store, range(1, 4), 4, SOON), start(store, range(3), 4, SOON)
    assert {str(error) for error in others[0]} == {"rank 0 did not start in 0 seconds."}
    # Rank 0 has answered the words of ranks 1 and 2, and an old word of rank 3.
    assert str(last[0]) == "rank 3 did not start in 0 seconds."
    found = start(store, range(4), 4, timedelta(seconds=20))
    assert found == [found[0]] * 4
    assert found[0] not in last


@pytest.mark.skipif(not place(), reason="needs /proc")
def test_processes_that_were_stopped_or_killed_are_known() -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        assert condition(process.pid) == ""
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        assert condition(process.pid) == "is stopped"
    finally:
        process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert condition(process.pid) == "has ended"  # a zombie
    process.wait()
    assert condition(process.pid) == "has ended"
