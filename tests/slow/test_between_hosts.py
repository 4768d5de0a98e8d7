"""Ranks that are killed or stopped while gradients are on their way between hosts."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.hosts import Hosts, hosts, missing

from tests.slow.launch import ROOT

N, RANK = 4, Path(__file__).with_name("steps_between_hosts.py")
SLOW = "50mbit"
"""A step sends 6 MB per rank, which takes a second; nearly all of it is spent in the exchange."""


@pytest.fixture(scope="module")
def network() -> Iterator[Hosts]:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    try:
        with hosts(N, SLOW) as found:
            yield found
    except RuntimeError as error:  # root in a container may lack the right to make them
        pytest.skip(str(error))


def start(network: Hosts, folder: Path, timeout: float) -> list["subprocess.Popen[bytes]"]:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    common = os.environ | network.environment()
    common |= {"PYTHONPATH": paths, "WORLD_SIZE": str(N), "LOCAL_RANK": "0"}
    processes = []
    for rank in range(N):
        command = [*network.prefix(rank), sys.executable, str(RANK), str(timeout)]
        with (folder / str(rank)).open("wb") as output:
            processes.append(
                subprocess.Popen(
                    command, env=common | {"RANK": str(rank)}, stdout=output, stderr=output
                )
            )
    return processes


def wait_for(text: str, path: Path, seconds: float = 100) -> None:
    deadline = time.monotonic() + seconds
    while text not in path.read_text():
        assert time.monotonic() < deadline, path.read_text()[-4000:]
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("sign", "bad", "timeout", "sentence"),
    [
        # The timeout is not what ends them: a closed connection does.
        (signal.SIGKILL, 2, 600, r"rank 2 \(.*\) has ended: (Connection closed|Read error|Write)"),
        (signal.SIGSTOP, 2, 4, r"rank 2 \(.*\) is stopped: "),
        # Rank 0 has the key-value store.
        (signal.SIGKILL, 0, 600, r"rank 0 \(.*\) has ended[,:] "),
        (signal.SIGSTOP, 0, 4, r"rank 0 \(.*\) is stopped: "),
    ],
)
def test_a_rank_that_is_lost_in_an_exchange_is_named(
    network: Hosts,
    tmp_path: Path,
    sign: signal.Signals,
    bad: int,
    timeout: float,
    sentence: str,
) -> None:
    processes = start(network, tmp_path, timeout)
    try:
        wait_for("step 1", tmp_path / str(bad))
        time.sleep(0.3)
        os.kill(processes[bad].pid, sign)
        for rank in set(range(N)) - {bad}:
            wait_for("RankFailedError", tmp_path / str(rank), 40)
            text = (tmp_path / str(rank)).read_text()
            assert re.search(rf"RankFailedError: step 2: {sentence}", text), text[-4000:]
    finally:
        for process in processes:
            process.kill()
            process.wait()
