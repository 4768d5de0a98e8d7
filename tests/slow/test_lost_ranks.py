"""Ranks that are killed or stopped: named by the others, and restarted by torchrun."""

import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.slow.launch import EXAMPLE, run, start

STEPS = ("--steps", "60")


def parameters(text: str) -> str:
    """The digest of the parameters that the example prints at its end."""
    (found,) = re.findall(r"parameters: (\w+)$", text, flags=re.MULTILINE)
    return str(found)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> str:
    return parameters(run(EXAMPLE, *STEPS, folder=tmp_path_factory.mktemp("run")))


@pytest.mark.parametrize("attempt", range(2))
def test_a_killed_rank_is_named_and_the_restarted_run_ends_the_same(
    uninterrupted: str, tmp_path: Path, attempt: int
) -> None:
    """Several times, because without new keys in the store a restart works only sometimes."""
    # Torchrun looks after its processes every two seconds: the others can say what has happened.
    options = ("--max-restarts", "2", "--monitor-interval", "2")
    arguments = (*STEPS, "--fault", "killed", "--checkpoint", "run.pt", "--every", "8")
    text = run(EXAMPLE, *arguments, folder=tmp_path, options=options)
    assert re.search(r"RankFailedError: step 30: rank 1 \(.*\) has ended: ", text)
    assert parameters(text) == uninterrupted


def test_a_stopped_rank_is_named_and_the_run_ends(tmp_path: Path) -> None:
    arguments = (*STEPS, "--fault", "stopped", "--timeout", "4")
    process, path = start(EXAMPLE, *arguments, folder=tmp_path)
    pattern = r"RankFailedError: step 30: rank 1 \(\S+ process (\d+), cpu\) is stopped: Timed out"
    deadline = time.monotonic() + 60
    named: list[str] = []
    while process.poll() is None and len(named) < 3 and time.monotonic() < deadline:
        named = re.findall(pattern, path.read_text())
        time.sleep(0.2)
    assert len(named) == 3, path.read_text()[-4000:]
    # A stopped process ends by a signal only when it goes on; torchrun would wait for 30 seconds.
    os.kill(int(named[0]), signal.SIGCONT)
    assert process.wait() == 1


def test_a_killed_rank_of_an_exchange_returns(tmp_path: Path) -> None:
    """Rank 1 is killed in round 30, and all ranks resume from their own states of round 24."""
    script = EXAMPLE.with_name("exchange_ranks.py")
    (tmp_path / "whole").mkdir()
    wanted = run(script, *STEPS, folder=tmp_path / "whole")
    options = ("--max-restarts", "2", "--monitor-interval", "2")
    arguments = (*STEPS, "--fault", "killed", "--folder", "states", "--every", "8")
    text = run(script, *arguments, folder=tmp_path, options=options)
    assert re.search(r"RankFailedError: round 30: rank 1 \(.*\) has ended: ", text)
    found = re.findall(r"parameters: (\S+)$", text, flags=re.MULTILINE)
    assert len(found) == 1
    assert found == re.findall(r"parameters: (\S+)$", wanted, flags=re.MULTILINE)
