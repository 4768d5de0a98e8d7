"""Ranks that are missing are named, also by a rank whose key-value store is gone with one of them."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from threading import Timer
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import TCPStore

from holdfast.distributed import _roll_call
from holdfast.distributed._processes import place
from holdfast.distributed._roll_call import RollCall
from holdfast.errors import RankFailedError

pytestmark = pytest.mark.skipif(not place(), reason="needs /proc")

SERVER = """
import time
import torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
time.sleep(60)
"""
WAIT = timedelta(seconds=20)


@pytest.fixture
def host() -> Iterator["subprocess.Popen[str]"]:
    """The process of rank 0, which has the key-value store."""
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


@pytest.fixture
def leaver() -> Iterator["subprocess.Popen[bytes]"]:
    """The process of rank 2."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def met(host: "subprocess.Popen[str]", leaver: "subprocess.Popen[bytes]") -> RollCall:
    """Rank 1 in this process, after it has met ranks 0 and 2."""
    assert host.stdout is not None
    port = int(host.stdout.readline())

    def one(rank: int) -> RollCall:
        store = TCPStore("127.0.0.1", port, timeout=WAIT)
        group: Any = SimpleNamespace(
            rank=lambda: rank, size=lambda: 3, get_group_store=lambda: store
        )
        return RollCall(group, torch.device("cpu"), {}, WAIT, call="start")

    with ThreadPoolExecutor(3) as threads:
        roll = list(threads.map(one, range(3)))[1]
    for rank, pid in {0: host.pid, 2: leaver.pid}.items():
        roll.members[rank] = replace(roll.members[rank], pid=pid)
    return roll


@pytest.mark.parametrize(
    ("sign", "clause"), [(signal.SIGSTOP, "is stopped"), (signal.SIGKILL, "has ended")]
)
def test_a_rank_that_ends_after_the_store_is_not_blamed(
    sign: signal.Signals,
    clause: str,
    host: "subprocess.Popen[str]",
    leaver: "subprocess.Popen[bytes]",
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other ranks end with an error of their own, while this one still waits for the store."""
    monkeypatch.setattr(_roll_call, "PATIENCE", 1.0)
    roll = met(host, leaver)
    os.kill(host.pid, sign)
    os.waitid(os.P_PID, host.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    Timer(0.5, leaver.kill).start()
    with pytest.raises(RankFailedError) as caught, roll.naming(7):
        raise RuntimeError("Timed out")
    assert str(caught.value) == f"step 7: {roll.members[0]} {clause}: Timed out."


def test_a_store_that_is_lost_with_its_machine_is_said(
    host: "subprocess.Popen[str]", leaver: "subprocess.Popen[bytes]"
) -> None:
    roll = met(host, leaver)
    roll.members[:] = [replace(member, pid=os.getpid()) for member in roll.members]
    host.kill()
    host.wait()
    with pytest.raises(RankFailedError) as caught, roll.naming(7):
        raise RuntimeError("Connection closed")
    assert str(caught.value) == "step 7 failed, and the key-value store is lost: Connection closed."
