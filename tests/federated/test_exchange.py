"""The exchange over Flower: nothing is lost, whoever is late, silent, or lies."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

from holdfast.exchange import Wire, WorkerMemory
from holdfast.federated import ExchangeStrategy, LocalGrid, worker_memory
from holdfast.federated._exchange_messages import KEY, REPORT, ROUND, VALUES, Instruction
from holdfast.federated._mods import MEMORY, PENDING
from holdfast.geometry import Block
from holdfast.layout import Layout
from tests.federated.cases import Arrays, answer, numbers, record, same

Door = Callable[[list[Message]], list[Message]]

SHAPE = (64, 40)
NODES = [2**63 + i for i in range(6)]


def start_model() -> Arrays:
    return {
        "weight": np.zeros(SHAPE, np.float32),
        "bias": np.zeros(10, np.float32),
        "norm.running_mean": np.zeros(3, np.float32),
        "norm.num_batches_tracked": np.asarray(0),
    }


def update_of(node: int) -> NDArray[np.float32]:
    return np.random.default_rng(node % 100).normal(1.0, 0.1, SHAPE).astype(np.float32)


class Federation:
    """Clients that add the same update in every round, and what they were told."""

    def __init__(self, *, door: Door | None = None, nodes: Sequence[int] = NODES) -> None:
        self.instructions: dict[int, list[Instruction]] = {node: [] for node in nodes}
        app = ClientApp(mods=[self.listen, worker_memory()])

        @app.train()
        def train(message: Message, context: Context) -> Message:
            assert KEY not in message.content
            arrays = numbers(message.content.array_records["arrays"])
            arrays["weight"] = arrays["weight"] + update_of(context.node_id)
            arrays["norm.running_mean"] = np.full(3, float(context.node_id % 10), np.float32)
            arrays["norm.num_batches_tracked"] = np.asarray(arrays["norm.num_batches_tracked"] + 5)
            return answer(message, arrays)

        self.grid = LocalGrid(app, {node: {} for node in nodes}, door=door)

    def listen(self, message: Message, context: Context, call_next: Any) -> Message:
        self.instructions[context.node_id].append(Instruction.of(message.content[KEY]))
        reply: Message = call_next(message, context)
        return reply

    def memory(self, node: int) -> NDArray[np.float32]:
        """What a client has not sent, without what it has sent but nobody has acknowledged."""
        state = self.grid.contexts[node].state
        saved = state.array_records[MEMORY]["weight"].numpy().copy().reshape(-1)
        memory = torch.from_numpy(np.concatenate([saved, np.zeros(10, np.float32)]))
        instruction = self.instructions[node][-1]
        assert state.config_records[PENDING]["round"] == instruction.round
        tiling = WorkerMemory(layout(), tile=64).tiling
        tiling.clear(memory, instruction.tiles)
        return memory.numpy()[: saved.size].reshape(SHAPE)


def layout() -> Layout:
    sizes = (("weight", SHAPE[0] * SHAPE[1]), ("bias", 10))
    return Layout([(name, torch.zeros(size, requires_grad=True)) for name, size in sizes])


def run(federation: Federation, strategy: ExchangeStrategy, n_rounds: int) -> Arrays:
    return numbers(strategy.start(federation.grid, record(start_model()), n_rounds).arrays)


def mean_exchange(**options: Any) -> ExchangeStrategy:
    return ExchangeStrategy(
        FedAvg(fraction_evaluate=0.0), "mean", **{"send": 0.1, "beta": 1.0} | options
    )


def test_everything_sent_is_the_average_of_updates() -> None:
    found = run(Federation(), mean_exchange(send=1.0), 3)
    mean = np.mean([update_of(node) for node in NODES], axis=0)
    np.testing.assert_allclose(found["weight"], 3 * mean, rtol=1e-5)
    assert found["norm.num_batches_tracked"] == 15
    assert found["norm.num_batches_tracked"].dtype == np.int64
    assert found["norm.running_mean"].tolist() == [2.0] * 3  # the median, and no sum over rounds


@pytest.mark.parametrize("wire", ["float32", "bfloat16", "int8"])
def test_nothing_is_lost(wire: Wire) -> None:
    federation = Federation()
    found = run(federation, mean_exchange(wire=wire), 25)
    if wire == "float32":
        kept = np.mean([federation.memory(node) for node in NODES], axis=0)
        mean = np.mean([update_of(node) for node in NODES], axis=0)
        np.testing.assert_allclose(found["weight"] + kept, 25 * mean, rtol=1e-4)
    assert 10 < found["weight"].mean() < 25
    assert found["bias"].tolist() == [0.0] * 10


def test_a_client_does_what_a_worker_memory_does_when_replies_are_lost() -> None:
    lost = {3, 4, 9}
    n_rounds = 14

    def door(replies: list[Message]) -> list[Message]:
        return [
            reply
            for reply in replies
            if not (reply.metadata.src_node_id == NODES[0] and int(reply.metadata.group_id) in lost)
        ]

    federation = Federation(door=door)
    strategy = mean_exchange()
    run(federation, strategy, n_rounds)
    memory = WorkerMemory(layout(), tile=64)
    for server_round, instruction in enumerate(federation.instructions[NODES[0]], 1):
        update = torch.cat([torch.from_numpy(update_of(NODES[0])).flatten(), torch.zeros(10)])
        memory.add(update)
        if server_round not in lost:
            block = Block(memory.tiling, instruction.tiles)
            memory.sent(block, memory.payload(block))
    expected = memory.vector[: SHAPE[0] * SHAPE[1]].view(SHAPE).numpy()
    np.testing.assert_allclose(federation.memory(NODES[0]), expected, rtol=1e-5)
    assert strategy.counts[NODES[0]] == 0


def test_clients_that_come_and_go_lose_nothing() -> None:
    federation = Federation()
    strategy = ExchangeStrategy(
        FedAvg(fraction_train=0.5, fraction_evaluate=0.0), "mean", send=0.1, beta=1.0
    )
    run(federation, strategy, 40)
    for node in NODES:
        given = federation.instructions[node]
        assert 8 < len(given) < 32
        # All that it had, less what was acknowledged, is what it has.
        memory = WorkerMemory(layout(), tile=64)
        for instruction in given:
            update = torch.from_numpy(update_of(node)).flatten()
            memory.add(torch.cat([update, torch.zeros(10)]))
            block = Block(memory.tiling, instruction.tiles)
            memory.sent(block, memory.payload(block))
        expected = memory.vector[: SHAPE[0] * SHAPE[1]].view(SHAPE).numpy()
        np.testing.assert_allclose(federation.memory(node), expected, rtol=1e-5)


def test_a_late_client_begins_with_an_empty_memory() -> None:
    federation = Federation()
    strategy = mean_exchange()
    apps = federation.grid._apps
    late = {NODES[5]: apps.pop(NODES[5])}
    first = numbers(strategy.start(federation.grid, record(start_model()), 5).arrays)
    apps |= late
    strategy.start(federation.grid, record(first), 1)
    assert len(federation.instructions[NODES[5]]) == 1
    assert federation.instructions[NODES[5]][0].acknowledged == -1
    memory = federation.memory(NODES[5])
    own = update_of(NODES[5])
    np.testing.assert_allclose(memory[memory != 0], own[memory != 0], rtol=1e-5)


def test_bytes_on_the_uplink_are_three_percent_of_the_model() -> None:
    app = ClientApp(mods=[worker_memory()])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = numbers(message.content.array_records["arrays"])
        return answer(message, {"weight": arrays["weight"] + 1})

    grid = LocalGrid(app, {node: {} for node in NODES})
    strategy = ExchangeStrategy(FedAvg(fraction_evaluate=0.0))
    model = {"weight": np.zeros((512, 512), np.float32)}
    result = strategy.start(grid, record(model), 2)
    sent = result.train_metrics_clientapp[2]["holdfast-bytes"]
    assert isinstance(sent, list)
    assert len(sent) == 6
    assert max(sent) < 0.03 * model["weight"].nbytes
    assert min(sent) > 0.02 * model["weight"].nbytes


def with_array(name: str, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Door:
    """Client 0 changes one array of its reply."""

    def door(replies: list[Message]) -> list[Message]:
        for reply in replies:
            if reply.metadata.src_node_id == NODES[0]:
                arrays = reply.content.array_records["arrays"]
                arrays[name] = Array(np.asarray(change(arrays[name].numpy().copy())))
        return replies

    return door


BAD: dict[str, tuple[Door, str]] = {
    "another round": (with_array(ROUND, lambda a: a - 1), "has the block of round"),
    "a round that is no number": (
        with_array(ROUND, lambda a: np.asarray(np.nan)),
        "cannot convert float NaN",
    ),
    "two rounds": (
        with_array(ROUND, lambda a: np.asarray([0, 1])),
        "has the block of round [0, 1]",
    ),
    "too few values": (with_array(VALUES, lambda a: a[:-8]), "has values of uint8"),
    "values of another kind": (with_array(VALUES, lambda a: a.view(np.float32)), "has values of"),
    "values that are not finite": (
        with_array(VALUES, lambda a: np.full(a.size // 4, np.nan, np.float32).view(np.uint8)),
        "is not finite",
    ),
    "a short report": (with_array(REPORT, lambda a: a[1:]), "has a report of"),
    "a report of another kind": (with_array(REPORT, lambda a: a.view(np.uint8)), "has a report of"),
    "a counter of another kind": (
        with_array("norm.num_batches_tracked", lambda a: a + 0.5),
        "dtype float64, not int64",
    ),
    "no reply": (
        lambda replies: [one for one in replies if one.metadata.src_node_id != NODES[0]],
        "did not reply",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_reply_is_dropped_and_the_others_count(name: str) -> None:
    door, reason = BAD[name]
    federation = Federation(door=door)
    strategy = mean_exchange()
    found = run(federation, strategy, 4)
    assert list(strategy.dropped) == [NODES[0]]
    assert reason in strategy.dropped[NODES[0]]
    assert strategy.report is not None
    assert strategy.report.reason == ""
    assert found["weight"].max() > 0
    # The client was never acknowledged, and keeps everything.
    assert {one.acknowledged for one in federation.instructions[NODES[0]]} == {-1}
    saved = federation.grid.contexts[NODES[0]].state.array_records[MEMORY]["weight"].numpy()
    np.testing.assert_allclose(saved.reshape(SHAPE), 4 * update_of(NODES[0]), rtol=1e-6)


def test_clients_without_the_mod_are_dropped_and_told_why() -> None:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return answer(message, numbers(message.content.array_records["arrays"]))

    grid = LocalGrid(app, {node: {} for node in NODES})
    strategy = mean_exchange()
    result = strategy.start(grid, record(start_model()), 1)
    assert same(numbers(result.arrays), start_model())
    assert all("worker_memory()" in reason for reason in strategy.dropped.values())


def test_a_round_without_a_majority_is_a_round_that_all_missed() -> None:
    def door(replies: list[Message]) -> list[Message]:
        if replies and replies[0].metadata.group_id == "2":
            for reply in replies[:4]:
                reply.content.array_records["arrays"].clear()
        return replies

    federation = Federation(door=door)
    strategy = mean_exchange()
    found = run(federation, strategy, 25)
    assert strategy.agreed is not None
    assert strategy.agreed.round == 24
    kept = np.mean([federation.memory(node) for node in NODES], axis=0)
    mean = np.mean([update_of(node) for node in NODES], axis=0)
    np.testing.assert_allclose(found["weight"] + kept, 25 * mean, rtol=1e-4)


@pytest.mark.parametrize("lie", [1e30, -1e3])
def test_liars_in_values_and_reports_are_bounded(lie: float) -> None:
    def door(replies: list[Message]) -> list[Message]:
        for reply in replies:
            if reply.metadata.src_node_id in NODES[:2]:
                arrays = reply.content.array_records["arrays"]
                values = arrays[VALUES].numpy()
                lies = np.full(values.size // 4, lie, np.float32)
                arrays[VALUES] = Array(lies.view(np.uint8))
                arrays[REPORT] = Array(np.full_like(arrays[REPORT].numpy(), -1))
        return replies

    federation = Federation(door=door)
    strategy = ExchangeStrategy(FedAvg(fraction_evaluate=0.0), send=0.1)
    found = run(federation, strategy, 25)
    assert 0 <= found["weight"].min() <= found["weight"].max() < 40
    assert {suspect.row for suspect in strategy.suspects()} == set(NODES[:2])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"tile": 32}, "tiles of 32 columns"),
        ({"beta": 1.5}, "beta"),
        ({"max_weight": 0.0}, "max_weight"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        ExchangeStrategy(FedAvg(), **options)


def test_an_error_of_the_client_leaves_its_memory_alone() -> None:
    app = ClientApp(mods=[worker_memory()])
    calls = []

    @app.train()
    def train(message: Message, context: Context) -> Message:
        calls.append(context.node_id)
        if len(calls) > 12:
            raise RuntimeError("out of memory")
        arrays = numbers(message.content.array_records["arrays"])
        return answer(message, {"weight": arrays["weight"] + 1})

    grid = LocalGrid(app, {node: {} for node in NODES})
    strategy = mean_exchange()
    strategy.start(grid, record({"weight": np.zeros(SHAPE, np.float32)}), 3)
    assert all("out of memory" in reason for reason in strategy.dropped.values())
    for context in grid.contexts.values():
        assert isinstance(context.state[MEMORY], ArrayRecord)
        assert context.state.config_records[PENDING]["round"] == 1
