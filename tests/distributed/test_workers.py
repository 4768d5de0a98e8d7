"""The harness: ranks meet, and a case that fails or hangs is named."""

import time

import pytest
import torch
import torch.distributed as dist

from tests.distributed import workers as harness
from tests.distributed.workers import Failure, Workers


def sum_of_ranks() -> float:
    total = torch.tensor(float(dist.get_rank()))
    dist.all_reduce(total)
    return float(total)


def raise_on_one() -> None:
    if dist.get_rank() == 1:
        raise KeyError("broken")
    dist.barrier()


def sleep_on_one() -> None:
    if dist.get_rank() == 2:
        time.sleep(60)


def test_all_ranks_answer(workers: Workers) -> None:
    assert workers.run(sum_of_ranks) == [6.0] * 4
    assert workers.run(sum_of_ranks, n=3) == [3.0] * 3


def test_a_rank_that_fails_ends_the_waiting_of_the_others(workers: Workers) -> None:
    found = workers.outcomes(raise_on_one)
    assert found[1].kind == "KeyError"
    assert all(isinstance(one, Failure) for one in found)


def test_a_rank_that_hangs_is_named(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "PATIENCE", 2.0)
    with pytest.raises(AssertionError, match=r"sleep_on_one hangs on ranks \[2\]"):
        workers.run(sleep_on_one)
    assert workers.run(sum_of_ranks) == [6.0] * 4
