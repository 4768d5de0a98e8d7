"""An exchange that is resumed: bit for bit, with ranks that lost their state, with fewer ranks."""

from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from holdfast.distributed import Exchange
from holdfast.seeds import stream
from tests.distributed.test_exchange import OPTIONS, flat
from tests.distributed.test_replicas import logged
from tests.distributed.workers import Failure, Workers

State = dict[str, Any]

MODES: dict[str, dict[str, Any]] = {
    "gradients": {},
    "momentum": {"outer_momentum": 0.5, "nesterov": True, "wire": "int8", "report_every": 2},
    "between rounds": {"local_steps": 4},
}


def make(mode: str, seed: int = 0) -> tuple[nn.Module, torch.optim.Optimizer, Exchange]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    kind: Any = torch.optim.AdamW if "local_steps" in MODES[mode] else torch.optim.SGD
    optimizer = kind(model.parameters(), lr=0.05)
    return model, optimizer, Exchange(model, optimizer, **OPTIONS | MODES[mode])


def train(model: nn.Module, optimizer: Any, exchange: Exchange, steps: range) -> None:
    for at in steps:
        x = torch.randn(8, 6, generator=stream(0, "images", dist.get_rank(), at))
        optimizer.zero_grad()
        model(x).square().mean().backward()
        exchange.step()


def whole(model: nn.Module) -> Tensor:
    return torch.cat([one.detach().double().flatten() for one in model.state_dict().values()])


def uninterrupted(mode: str) -> tuple[Tensor, State, Tensor, Tensor]:
    """The state of this rank after 14 steps, and parameters and memory after 22."""
    model, optimizer, exchange = make(mode)
    train(model, optimizer, exchange, range(14))
    parts = (model.state_dict(), optimizer.state_dict(), exchange.state_dict())
    saved: State = torch.utils._pytree.tree_map(
        lambda one: one.clone() if isinstance(one, Tensor) else one,
        dict(zip(("model", "optimizer", "exchange"), parts, strict=True)),
    )
    train(model, optimizer, exchange, range(14, 22))
    return whole(model), saved, exchange.memory.vector, exchange.monitor.counts


def resumed(mode: str, states: list[State | None]) -> tuple[Tensor, Tensor, Tensor, list[str]]:
    """The same from the state of this rank on; None for a rank that has lost its own."""
    state = states[dist.get_rank()]
    model, optimizer, exchange = make(mode, seed=1)
    with logged() as messages:
        if state is not None:
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
        exchange.load_state_dict(None if state is None else state["exchange"])
    assert exchange.n_steps == 14
    train(model, optimizer, exchange, range(14, 22))
    return whole(model), exchange.memory.vector, exchange.monitor.counts, messages


@pytest.mark.parametrize("mode", MODES)
def test_resumed_equals_uninterrupted(workers: Workers, mode: str) -> None:
    before = workers.run(uninterrupted, mode)
    after = workers.run(resumed, mode, [one[1] for one in before])
    for (wanted, _, memory, counts), found in zip(before, after, strict=True):
        assert found[0].equal(wanted)
        assert found[1].equal(memory)
        assert found[2].equal(counts)
        assert not found[3]


@pytest.mark.parametrize("mode", MODES)
def test_a_rank_without_a_state_joins_with_an_empty_memory(workers: Workers, mode: str) -> None:
    saved = [one[1] for one in workers.run(uninterrupted, mode)]
    states = [*saved[:2], None, saved[3]]
    found = workers.run(resumed, mode, states)
    for parameters, _, _, messages in found:
        joined = [one for one in messages if "begin with an empty memory" in one]
        assert len(joined) == 1
        assert joined[0].startswith("rank 2 (")
        if mode == "gradients":  # between rounds, ranks have parameters of their own
            assert parameters.equal(found[0][0])


def test_fewer_ranks_forget_memories(workers: Workers) -> None:
    saved = [one[1] for one in workers.run(uninterrupted, "gradients")]
    found = workers.run(resumed, "gradients", saved[:3], n=3)
    for parameters, _, counts, messages in found:
        assert messages == ["the memory of rank 3 is forgotten: there are 3 ranks now"]
        assert parameters.equal(found[0][0])
        assert len(counts) == 3


def loaded(states: list[Any], mode: str = "gradients") -> None:
    exchange = make(mode)[2]
    exchange.load_state_dict(states[dist.get_rank()])


def test_states_that_do_not_fit_are_refused(workers: Workers) -> None:
    saved = [one[1]["exchange"] for one in workers.run(uninterrupted, "gradients")]
    found = workers.outcomes(loaded, [saved[1], saved[0], saved[3], saved[2]])
    for rank, other in enumerate([1, 0, 3, 2]):
        assert isinstance(found[rank], Failure)
        assert found[rank].message == (
            f"`state` must be that of rank {rank}, got that of rank {other}."
        )
    for one in workers.outcomes(loaded, [{"round": 3}] * 4):
        assert one.message == "`state` must be a state of Exchange, got dict."
    split = [one | {"n_steps": 1000 + one["rank"] // 2} for one in saved]
    for one in workers.outcomes(loaded, split):
        assert one.kind == "RanksDifferError"
        assert one.message.startswith("only 2 of 4 ranks have the same state: rank 0 (")
        assert one.message.endswith(". With None on all ranks the exchange begins anew.")


def test_a_liar_cannot_bring_a_state_to_the_first_start(workers: Workers) -> None:
    """Its waits and its outer velocity would be those of every rank."""
    saved = [one[1]["exchange"] for one in workers.run(uninterrupted, "momentum")]
    for one in workers.outcomes(loaded, [None, None, None, saved[3]], "momentum"):
        assert one.kind == "RanksDifferError"
        assert one.message.startswith("only 1 of 4 ranks have the same state: rank 3 (")


def test_a_state_with_other_options_is_refused_by_all_ranks(workers: Workers) -> None:
    saved = [one[1]["exchange"] for one in workers.run(uninterrupted, "gradients")]
    for n_tiles in (2, 100):
        agreed = {name: torch.ones(n_tiles).to(one.dtype) for name, one in tensors(saved[0])}
        other = [one | {"agreed": agreed | {"round": 7}} for one in saved]
        for one in workers.outcomes(loaded, [*saved[:2], other[2], saved[3]]):
            assert one.kind == "RanksDifferError"
            odd = "`load_state_dict` must be the same on all ranks, got one of other options on rank 2"
            assert one.message.startswith(odd)
        for one in workers.outcomes(loaded, other):
            assert one.message.startswith("`state` must hold numbers [2] torch.int64, waits [")
    renamed = [one | {"memory": one["memory"] | {"memory": {}}} for one in saved]
    for one in workers.outcomes(loaded, renamed):
        assert one.message.startswith("`state['memory']` must have the parameters {'0.weight'")


def tensors(state: State) -> list[tuple[str, Tensor]]:
    return [(name, one) for name, one in state["agreed"].items() if name != "round"]


def rejections_after(states: list[State | None]) -> list[int]:
    exchange = make("gradients")[2]
    exchange.load_state_dict(states[dist.get_rank()])
    return exchange.counts.tolist()


def test_the_history_of_rejections_is_the_same_on_all_ranks(workers: Workers) -> None:
    saved = [one[1]["exchange"] for one in workers.run(uninterrupted, "gradients")]
    for one in saved:
        one["monitor"]["counts"] += 5
    wanted = saved[0]["monitor"]["counts"].tolist()
    assert workers.run(rejections_after, saved) == [wanted] * 4
    assert workers.run(rejections_after, [saved[0], None, *saved[2:]]) == [[0] * 4] * 4


def other_parameters(odd: list[int]) -> tuple[Tensor, list[str]]:
    torch.manual_seed(dist.get_rank() if dist.get_rank() in odd else 100)
    model = nn.Linear(6, 5)
    with logged() as messages:
        Exchange(model, torch.optim.SGD(model.parameters(), lr=0.1), send=0.5)
    return flat(model), messages


def test_parameters_are_those_of_the_majority(workers: Workers) -> None:
    found = workers.run(other_parameters, [2])
    for parameters, messages in found:
        assert parameters.equal(found[0][0])
        assert len(messages) == 1
        assert messages[0].startswith("parameters of rank 2 (")
    for one in workers.outcomes(other_parameters, [0, 1, 2]):
        assert one.message == "no majority of the ranks has the same parameters."


def one_does_not_load() -> None:
    model = nn.Linear(6, 5)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    exchange = Exchange(model, optimizer, send=0.5, timeout=timedelta(seconds=2))
    if dist.get_rank() != 1:
        exchange.load_state_dict(None)


def test_a_rank_that_does_not_load_is_named(workers: Workers) -> None:
    found = workers.outcomes(one_does_not_load)
    for rank in (0, 2, 3):
        assert found[rank].kind == "RankFailedError"
        assert found[rank].message == "rank 1 did not call `load_state_dict` in 2 seconds."
