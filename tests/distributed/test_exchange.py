"""The exchange over ranks equals the simulation of all ranks in one process, bit for bit."""

import copy
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from holdfast import Layout
from holdfast.distributed import Exchange
from holdfast.distributed._collectives import Channel
from holdfast.exchange import AgreedBlock, LocalSteps, Payload
from holdfast.geometry import Tiling
from holdfast.seeds import stream
from tests.distributed.cases import SIZES, Known
from tests.distributed.workers import Failure, Workers
from tests.exchange.cases import Simulation

D, TILE = sum(SIZES), 4
RULE = f"blockwise(tile={TILE}) | geometric-median"
OPTIONS: dict[str, Any] = {"send": 0.2, "tile": TILE, "rule": RULE, "min_wait": 2, "max_wait": 9}
N_TILES = Tiling(Layout(Known()).sizes, TILE).n_tiles


def gradients(n: int = 4, n_rounds: int = 6) -> Tensor:
    """[n_rounds, n, d] with a common part."""
    own = torch.randn(n_rounds, n, D, generator=stream(0, "gradients", n))
    return own + own[:1, :1]


def flat(model: nn.Module) -> Tensor:
    return torch.cat([one.detach().flatten() for one in model.parameters()]).clone()


def simulation(
    model: nn.Module, n: int = 4, *, wire: str = "float32", **options: Any
) -> Simulation:
    """All ranks in one process, with parameters of the model."""
    layout = Layout(model)
    waits = {name: OPTIONS[name] for name in ("send", "min_wait", "max_wait")}
    agreed = AgreedBlock(Tiling(layout.sizes, TILE), **waits | options)
    return Simulation(layout, n, agreed, RULE, wire=wire)


def simulated(updates: Tensor, *, lies: dict[str, Any] | None = None, **options: Any) -> Tensor:
    """[n_rounds, d] the parameters after each round of a simulation."""
    model, found = Known(), []
    driver = simulation(model, updates.shape[1], **options)
    for rows in updates:
        driver.round(rows, **(lies or {}))
        found.append(flat(model))
    return torch.stack(found)


def exchange_of(model: nn.Module, **options: Any) -> tuple[Exchange, torch.optim.Optimizer]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    return Exchange(model, optimizer, **OPTIONS | options), optimizer


def step(model: nn.Module, exchange: Exchange, batch: Tensor) -> Tensor:
    """One step with this rank's row of the batch; returns the parameters."""
    model.zero_grad()
    model(batch[dist.get_rank()]).backward()
    exchange.step()
    return flat(model)


def trained(batches: Tensor, options: dict[str, Any]) -> Tensor:
    """[n_rounds, d] the parameters of this rank after each round."""
    model = Known()
    exchange, _ = exchange_of(model, **options)
    found = [step(model, exchange, batch) for batch in batches]
    assert exchange.agreed.round == exchange.n_steps == len(batches)
    return torch.stack(found)


@pytest.mark.parametrize("n", [3, 4])
@pytest.mark.parametrize(
    "options",
    [{}, {"report_every": 3}, {"report_every": None}, {"wire": "bfloat16"}, {"wire": "int8"}],
    ids=str,
)
def test_ranks_equal_the_simulation(workers: Workers, n: int, options: dict[str, Any]) -> None:
    batches = gradients(n)
    wanted = simulated(0.5 * batches, **options)
    for found in workers.run(trained, batches, options, n=n):
        assert found.equal(wanted)


LIES: dict[str, tuple[str, float]] = {
    "values of NaN": ("values", torch.nan),
    "huge values": ("values", 1e30),
    "reports of NaN": ("reports", torch.nan),
    "huge reports": ("reports", 1e30),
    "negative reports": ("reports", -1.0),
}


def with_a_liar(batches: Tensor, where: str, value: float) -> tuple[Tensor, Any]:
    """Rank 1 reports or sends the same value everywhere."""
    model = Known()
    exchange, _ = exchange_of(model)
    memory, send = exchange.memory, exchange.memory.payload
    patches: list[Any] = []
    if dist.get_rank() == 1 and where == "reports":
        lie = torch.full((N_TILES,), value, dtype=torch.bfloat16)
        patches = [mock.patch.object(memory, "report", return_value=lie)]
    if dist.get_rank() == 1 and where == "values":

        def payload(block: Any) -> Payload:
            return Payload(torch.full_like(send(block).values, value))

        patches = [mock.patch.object(memory, "payload", side_effect=payload)]
    for patch in patches:
        patch.start()
    found = torch.stack([step(model, exchange, batch) for batch in batches])
    for patch in patches:
        patch.stop()
    return found, (exchange.rejected, exchange.weights, exchange.counts.tolist())


@pytest.mark.parametrize("name", LIES)
def test_a_liar_has_its_report_and_its_row_only(workers: Workers, name: str) -> None:
    where, value = LIES[name]
    batches = gradients()
    size = N_TILES if where == "reports" else D
    lie = torch.full((size,), value, dtype=torch.bfloat16 if where == "reports" else torch.float32)
    wanted = simulated(0.5 * batches, lies={where: {1: lie}})
    assert wanted.isfinite().all()
    for found, (rejected, weights, counts) in workers.run(with_a_liar, batches, where, value):
        assert found.equal(wanted)
        assert weights.sum() == pytest.approx(1.0)
        if where == "values":
            assert rejected == ([1] if value != value else [])
            assert weights[1] < 1e-6
            assert counts == [0, 6, 0, 0]


def tampering(kind: str, at_call: int) -> Callable[[Channel, Tensor], Tensor]:
    """A way to send in which something is not the same for all, in one call of the channel."""
    original, calls = Channel.send, iter(range(10**6))

    def send(self: Channel, message: Tensor) -> Tensor:
        rank, n = dist.get_rank(), dist.get_world_size()
        is_now = next(calls) == at_call
        if is_now and kind == "sender" and rank == 1:
            given = message.repeat(n, 1)
            given[2, 0] += 1  # another byte for rank 2
            return original(self, given)
        found = original(self, message)
        if is_now and kind == "receiver" and rank == 3:
            found[:, 0] += 1
        return found

    return send


def equivocation(batches: Tensor, kind: str, at_call: int) -> tuple[str, list[Tensor], Tensor]:
    """The error, the parameters before and after it, and after one more round."""
    model = Known()
    exchange, _ = exchange_of(model)
    seen = [step(model, exchange, batches[0])]
    message = ""
    with mock.patch.object(Channel, "send", tampering(kind, at_call)):
        try:
            step(model, exchange, batches[1])
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
    seen.append(flat(model))
    assert exchange.agreed.round == 1
    return message, seen, step(model, exchange, batches[2])


@pytest.mark.parametrize("at_call", [0, 1], ids=["reports", "values"])
@pytest.mark.parametrize("kind", ["sender", "receiver"])
def test_different_values_for_different_ranks_are_detected(
    workers: Workers, kind: str, at_call: int
) -> None:
    batches = gradients()
    model = Known()
    driver = simulation(model)
    driver.round(0.5 * batches[0])
    before = flat(model)
    for memory, update in zip(driver.memories, 0.5 * batches[1], strict=True):
        memory.add(update)  # everybody missed this round, and keeps the update
    driver.round(0.5 * batches[2])
    found = workers.run(equivocation, batches, kind, at_call)
    for message, seen, after in found:
        assert message == found[0][0]
        assert message.startswith("RanksDifferError: round 1 was not made: ")
        if kind == "sender":
            assert "rank 1 (" in message
            assert "sent rank 2 (" in message
        else:
            assert "rank 3 (" in message
            assert "received other values than the others." in message
        assert seen[0].equal(before)
        assert seen[1].equal(before)
        assert after.equal(flat(model))


def another_direction(batches: Tensor) -> None:
    """Rank 2 has a fault in its processor."""
    model = Known()
    exchange, _ = exchange_of(model)
    rule = exchange.rule
    if dist.get_rank() == 2:
        original = type(rule)._aggregate

        def faulty(*args: Any) -> Any:
            found = original(*args)
            found.vector[0] += 1e-3
            return found

        with mock.patch.object(type(rule), "_aggregate", faulty):
            step(model, exchange, batches[0])
    step(model, exchange, batches[0])


def test_another_direction_from_the_same_rows_is_detected(workers: Workers) -> None:
    for one in workers.outcomes(another_direction, gradients()):
        assert one.kind == "RanksDifferError", one.trace
        assert one.message.startswith("round 0 was not made: rank 2 (")
        assert one.message.endswith(") computed another direction from the same values.")


def mostly_nan(batches: Tensor) -> None:
    model = Known()
    exchange, _ = exchange_of(model)
    if dist.get_rank() != 2:
        exchange.memory.vector.fill_(torch.nan)
    step(model, exchange, batches[0])


def test_rows_without_a_majority_raise_on_all_ranks(workers: Workers) -> None:
    for one in workers.outcomes(mostly_nan, gradients()):
        assert one.kind == "NonFiniteRowsError", one.trace


def local_training(images: Tensor, n_rounds: int) -> tuple[Tensor, list[int]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    exchange = Exchange(model, optimizer, local_steps=3, **OPTIONS)
    rounds = []
    for batch in images[dist.get_rank()][: 3 * n_rounds]:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        rounds.append(int(exchange.step()))
    return flat(model), rounds


def test_local_steps_equal_the_simulation(workers: Workers) -> None:
    images = torch.randn(4, 12, 8, 6, generator=stream(0, "images"))
    torch.manual_seed(0)
    shared = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    models = [copy.deepcopy(shared) for _ in range(4)]
    optimizers = [torch.optim.AdamW(model.parameters(), lr=0.01) for model in models]
    local = [LocalSteps(Layout(model)) for model in models]
    driver = simulation(shared)
    for at in range(0, 12, 3):
        for model, optimizer, batches in zip(models, optimizers, images, strict=True):
            for batch in batches[at : at + 3]:
                optimizer.zero_grad()
                model(batch).square().mean().backward()
                optimizer.step()
        driver.round(torch.stack([one.update() for one in local]))
        for model, one in zip(models, local, strict=True):
            model.load_state_dict(shared.state_dict())
            one.begin()
    for found, rounds in workers.run(local_training, images, 4):
        assert found.equal(flat(shared))
        assert rounds == [0, 0, 1] * 4


class Uneven(nn.Module):
    """Two dtypes; a frozen parameter, a shared, an empty and an unused one; buffers."""

    levels: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.ones(6, dtype=torch.bfloat16))
        self.second = nn.Parameter(torch.ones(5, dtype=torch.float64))
        self.same = self.second
        self.unused = nn.Parameter(torch.ones(3))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.empty = nn.Parameter(torch.ones(0, 3))
        self.norm = nn.BatchNorm1d(5, affine=False)
        self.register_buffer("levels", torch.tensor([300, 400], dtype=torch.int16))

    def forward(self, x: Tensor) -> Tensor:
        scaled: Tensor = self.norm(x) * self.second.float()
        return scaled.sum() + self.first.float().sum() * x.sum() + self.empty.sum()


def uneven(maximize: bool) -> tuple[Tensor, ...]:
    model = Uneven()
    groups = [
        {"params": [model.first], "lr": 0.25},
        {"params": [model.second], "lr": 0.5, "weight_decay": 0.5},
        # SGD does not decay parameters without a gradient either.
        {"params": [model.unused, model.frozen, model.empty], "lr": 0.5, "weight_decay": 0.5},
    ]
    optimizer = torch.optim.SGD(groups, lr=1.0, maximize=maximize)
    exchange = Exchange(model, optimizer, rule="mean", send=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    x = torch.arange(10.0).view(2, 5) + dist.get_rank() ** 2
    model.levels += dist.get_rank()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(x).backward()
        gradient = model.first.grad
        assert gradient is not None
        exchange.step()
        scheduler.step()
    parameters = (model.first, model.second, model.unused, model.frozen, gradient)
    buffers = (model.norm.running_mean, model.norm.num_batches_tracked, x.mean(0), model.levels)
    return tuple(one.detach().clone() for one in (*parameters, *buffers) if one is not None)


@pytest.mark.parametrize("maximize", [False, True])
def test_uneven_models(workers: Workers, maximize: bool) -> None:
    found = workers.run(uneven, maximize)
    sign = -1.0 if maximize else 1.0
    gradient = torch.stack([one[4].double() for one in found]).mean(0)
    means = torch.stack([one[7] for one in found]).sort(0).values[1:3].mean(0)
    for first, second, unused, frozen, _, mean, count, _, levels in found:
        torch.testing.assert_close(first.double(), 1 - sign * 0.25 * gradient, rtol=1e-2, atol=0)
        # The normalized inputs add up to zero, so that weight decay remains.
        torch.testing.assert_close(second, torch.full_like(second, 0.75), rtol=1e-5, atol=1e-5)
        assert second.dtype == torch.float64
        assert bool((unused == 1).all())
        assert bool((frozen == 1).all())
        torch.testing.assert_close(mean, 0.1 * means)
        assert int(count) == 1
        assert levels.tolist() == [301, 401]


def lost_in_a_round() -> None:
    model = Known()
    exchange, _ = exchange_of(model)
    batches = gradients()
    step(model, exchange, batches[0])
    if dist.get_rank() == 2:
        raise KeyError("gone")
    step(model, exchange, batches[1])


def test_a_rank_that_does_not_come_to_a_round_is_named(workers: Workers) -> None:
    found = workers.outcomes(lost_in_a_round, timeout=2.0)
    for rank in (0, 1, 3):
        assert isinstance(found[rank], Failure)
        assert found[rank].kind == "RankFailedError", found[rank].trace
        assert found[rank].message.startswith("round 1: rank 2 (")
        assert "did not reach it" in found[rank].message


def left_out_updates(batches: Tensor) -> tuple[list[int], Tensor, int, int]:
    """Rank 3 computes NaN twice."""
    model = Known()
    exchange, _ = exchange_of(model)
    for number, batch in enumerate(batches):
        if dist.get_rank() == 3 and number in (2, 4):
            batch = batch * torch.nan
        after = step(model, exchange, batch)
    return exchange.n_left_out, after, exchange.bytes_sent, exchange.longest_wait


def test_updates_that_a_rank_leaves_out_are_counted(workers: Workers) -> None:
    found = workers.run(left_out_updates, gradients())
    for counts, parameters, n_bytes, wait in found:
        assert counts == [0, 0, 0, 2]
        assert parameters.equal(found[0][1])
        assert parameters.isfinite().all()
        # Reports of 2 bytes per tile and 10 tiles of 4 numbers, to three ranks; and testimonies.
        assert n_bytes == 3 * (-(-2 * N_TILES // 8) * 8 + 10 * TILE * 4 + 24 + 16 * 7)
        assert 2 <= wait <= 9
