"""The object that a training keeps: exclusion, state, suspects, and what it does with failures."""

import time
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from tests.distributed.cases import Known, gradient_of, guarded_model
from tests.distributed.workers import Failure, Workers

SOON = timedelta(seconds=3)
D = 194


def step(model: nn.Module, optimizer: torch.optim.Optimizer, row: Tensor) -> Tensor:
    """One step; the gradient."""
    optimizer.zero_grad()
    model(row).backward()
    optimizer.step()
    return gradient_of(model)


def rows_of(step: int) -> Tensor:
    generator = torch.Generator().manual_seed(step)
    return 1.0 + 0.1 * torch.randn(4, D, generator=generator)


def with_exclusion(kind: str) -> tuple[Tensor, list[int], list[int], list[int], str]:
    model, found, optimizer = guarded_model(kind, "radius-filter", Known())
    step(model, optimizer, rows_of(0)[dist.get_rank()])
    found.exclude(2)
    gradient = step(model, optimizer, rows_of(1)[dist.get_rank()])
    return gradient, found.rejected, found.excluded, found.counts.tolist(), repr(found)


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "plain"])
def test_exclude(workers: Workers, kind: str) -> None:
    wanted = rows_of(1)[[0, 1, 3]].mean(0)
    for gradient, rejected, excluded, counts, text in workers.run(with_exclusion, kind):
        torch.testing.assert_close(gradient, wanted)
        assert rejected == excluded == [2]
        assert counts == [0, 0, 0, 0]  # nobody watches it any more
        assert text == "Guard(RadiusFilter(), 4 rows, sharded)"


def exclude(row: Any, rule: str) -> None:
    _, found, _ = guarded_model("plain", rule, Known())
    found.exclude(3)
    found.exclude(row)


def test_exclude_refuses(workers: Workers) -> None:
    for one in workers.outcomes(exclude, 4, "radius-filter"):
        assert one.message == "`row` must be one of 4 rows, got 4."
    for one in workers.outcomes(exclude, -1, "radius-filter"):
        assert one.message == "`row` must be a whole number of at least 0, got -1."
    for one in workers.outcomes(exclude, 2, "trimmed-mean(n_bad=1)"):
        assert one.message.startswith("`row` must leave the 3 rows of TrimmedMean(n_bad=1), got 2")


def excluded_by_some(what: str) -> None:
    _, found, _ = guarded_model("plain", "radius-filter", Known(), timeout=SOON)
    if what == "other row":
        found.exclude(dist.get_rank() % 2)
    elif dist.get_rank() == 1:
        found.exclude(3)
    else:
        dist.barrier()


def test_exclude_waits_for_all_ranks(workers: Workers) -> None:
    for one in workers.outcomes(excluded_by_some, "other row"):
        assert one.kind == "RanksDifferError"
        assert one.message.startswith("`exclude` must be the same on all ranks, got row 1")
    found = workers.outcomes(excluded_by_some, "one rank", timeout=4)
    assert found[1].message == "rank 0 did not call `exclude` in 3 seconds."
    assert all(isinstance(one, Failure) for one in found)


RULE = "bucketing(bucket_size=1) | geometric-median"


def saved(n_steps: int, state: dict[str, Any] | None) -> tuple[list[Tensor], dict[str, Any]]:
    """Steps with a wild row, from the beginning or from a state."""
    model, found, optimizer = guarded_model("ddp", RULE, Known())
    if state is not None:
        found.load_state_dict(state)
    gradients = []
    for i in range(found.n_steps, n_steps):
        row = rows_of(i)[dist.get_rank()]
        gradients.append(step(model, optimizer, row * 1e6 if dist.get_rank() == 1 else row))
    return gradients, found.state_dict()


def is_equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_equal(one[key], other[key]) for key in one)
    if isinstance(one, Tensor):
        return one.equal(other) or bool(((one == other) | (one.isnan() & other.isnan())).all())
    return bool(one == other)


def test_resumed_is_uninterrupted(workers: Workers) -> None:
    whole = workers.run(saved, 6, None)
    half = workers.run(saved, 3, None)
    resumed = workers.run(saved, 6, half[0][1])
    for rank in range(4):
        gradients = half[rank][0] + resumed[rank][0]
        assert all(a.equal(b) for a, b in zip(gradients, whole[rank][0], strict=True))
        # The first step of a process has other buckets, whose products have another rounding.
        torch.testing.assert_close(
            resumed[rank][1], whole[rank][1], rtol=1e-9, atol=1e-9, equal_nan=True
        )
        assert is_equal(whole[rank][1], whole[0][1])  # the same on every rank


def test_resumed_with_another_number_of_ranks(workers: Workers) -> None:
    state = workers.run(saved, 6, None)[0][1] | {"excluded": [2]}
    for _, after in workers.run(saved, 8, state, n=3):
        assert after["n_steps"] == 8
        assert after["excluded"] == []
        assert len(after["monitor"]["counts"]) == 3
        assert after["monitor"]["n_steps"] == 2


def resumed_wrongly(what: str) -> None:
    _, found, _ = guarded_model("plain", RULE, Known(), timeout=SOON)
    state = found.state_dict()
    if what == "keys":
        found.load_state_dict({"n_steps": 3})
    elif what == "window":
        _, other, _ = guarded_model("plain", RULE, Known(), window=50)
        state = other.state_dict() | {"n_steps": 8}
        try:
            found.load_state_dict(state)
        finally:
            assert found.n_steps == 0  # nothing has changed
    else:
        found.load_state_dict(state | {"n_steps": dist.get_rank() // 3})


def test_states_that_are_refused(workers: Workers) -> None:
    for one in workers.outcomes(resumed_wrongly, "keys"):
        assert one.message == "`state` must be a state of Guard, got dict."
    for one in workers.outcomes(resumed_wrongly, "window"):
        assert one.message.startswith("`state` must have 4 rows and half a window of 100 steps")
    for one in workers.outcomes(resumed_wrongly, "other"):
        assert one.kind == "RanksDifferError"
        assert "got step 1 (" in one.message


def suspected(kind: str) -> tuple[list[Any], list[Any], list[int]]:
    seen: list[Any] = []
    model, found, optimizer = guarded_model(kind, "radius-filter", Known(), on_suspect=seen.append)
    for i in range(11):
        row = rows_of(i)[dist.get_rank()]
        step(model, optimizer, row * -100 if dist.get_rank() == 3 else row)
    return seen, found.suspects(), found.counts.tolist()


@pytest.mark.parametrize("kind", ["ddp", "bucket", "fsdp", "plain"])
def test_suspects_are_the_same_on_every_rank(workers: Workers, kind: str) -> None:
    for seen, suspects, counts in workers.run(suspected, kind):
        assert [one.row for one in seen] == [one.row for one in suspects] == [3]
        assert seen[0].reason == "rejected in 10 of the last 10 steps"
        assert counts == [0, 0, 0, 11]


def raise_error(_: object) -> None:
    if dist.get_rank() == 0:
        raise KeyError("of the caller")


def with_a_callback_that_raises(kind: str) -> int:
    model, found, optimizer = guarded_model(
        kind, "radius-filter", Known(), on_suspect=raise_error, timeout=SOON
    )
    for i in range(11):
        row = rows_of(i)[dist.get_rank()]
        step(model, optimizer, row * -100 if dist.get_rank() == 3 else row)
    return found.n_steps


@pytest.mark.parametrize("kind", ["ddp", "bucket", "plain"])
def test_an_error_of_the_callback_is_that_of_its_rank(workers: Workers, kind: str) -> None:
    found = workers.outcomes(with_a_callback_that_raises, kind, timeout=2)
    assert found[0].kind == "KeyError", found[0].trace
    for one in found[1:]:
        assert one.kind == "RankFailedError", one.trace
        assert one.message.startswith("step 10: rank 0 (")


def leaves(kind: str, how: str) -> list[Any]:
    """Rank 2 makes two steps, the others three."""
    model, found, optimizer = guarded_model(kind, "radius-filter", Known())
    for i in range(3):
        if dist.get_rank() == 2 and i == 2:
            if how == "stops":
                time.sleep(4)  # longer than the others wait
            if how == "dies":
                raise KeyError("of its own")
            return [found.n_steps]
        if dist.get_rank() == 3 and i == 2:
            time.sleep(0.5)  # not the one that is missing
        model(rows_of(i)[dist.get_rank()]).backward()
        optimizer.step()
    return [found.n_steps]


@pytest.mark.parametrize(
    ("kind", "how"),
    [("ddp", "stops"), ("ddp", "dies"), ("bucket", "stops"), ("fsdp", "stops"), ("plain", "dies")],
)
def test_a_rank_that_stops_is_named(workers: Workers, kind: str, how: str) -> None:
    found = workers.outcomes(leaves, kind, how, timeout=2)
    for rank in (0, 1, 3):
        assert found[rank].kind == "RankFailedError", found[rank].trace
        assert found[rank].message.startswith("step 2: rank 2 ("), found[rank].message
        assert "did not reach it" in found[rank].message
        assert "rank 3 (" not in found[rank].message
