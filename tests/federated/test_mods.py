"""Worker momentum as a client mod."""

from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from holdfast.federated import LocalGrid, RobustStrategy, worker_memory, worker_momentum
from holdfast.federated._mods import MOMENTUM
from tests.federated.cases import answer, model, numbers, record, same


def send(app: ClientApp, context: Context, arrays: Any, kind: str = "train") -> Message:
    LocalGrid(app, {})  # says who this process is
    return app(Message(RecordDict({"arrays": record(arrays)}), 7, kind), context)


def context() -> Context:
    return Context(1, 7, {}, RecordDict(), {})


def app_of(updates: list[float], *mods: Any) -> ClientApp:
    app = ClientApp(mods=list(mods))

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = numbers(message.content.array_records["arrays"])
        step = updates.pop(0)
        new = {
            name: np.asarray(value + (step if value.dtype.kind == "f" else 5), value.dtype)
            for name, value in arrays.items()
        }
        return answer(message, new)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return answer(message, numbers(message.content.array_records["arrays"]))

    return app


def test_momentum_is_an_average_of_updates_over_rounds() -> None:
    app, own, before = app_of([1.0, 3.0, -1.0], worker_momentum(beta=0.5)), context(), model()
    expected = [1.0, 2.0, 0.5]
    for step in expected:
        reply = numbers(send(app, own, before).content.array_records["arrays"])
        np.testing.assert_allclose(reply["layer.weight"], before["layer.weight"] + step, rtol=1e-5)
        np.testing.assert_allclose(reply["layer.bias"], before["layer.bias"] + step, rtol=1e-2)
        assert reply["norm.num_batches_tracked"] == 12
        assert {n: v.dtype for n, v in reply.items()} == {n: v.dtype for n, v in before.items()}
    assert set(own.state) == {MOMENTUM}


def test_a_garbage_update_is_sent_as_nan_and_not_remembered() -> None:
    app, own = app_of([1.0, float("nan"), 1.0], worker_momentum(beta=0.5)), context()
    before = model()
    del before["scale"]
    replies = [
        numbers(send(app, own, before).content.array_records["arrays"])["layer.weight"]
        for _ in range(3)
    ]
    assert np.isnan(replies[1]).all()
    np.testing.assert_allclose(replies[2], before["layer.weight"] + 1.0, rtol=1e-5)


@pytest.mark.parametrize("mod", [worker_momentum(), worker_memory()])
def test_other_messages_pass_unchanged(mod: Any) -> None:
    app, own, before = app_of([1.0], mod), context(), model()
    reply = send(app, own, before, "evaluate")
    assert same(numbers(reply.content.array_records["arrays"]), before)
    assert set(own.state) == set()


def test_memory_without_an_exchange_passes_the_reply() -> None:
    reply = send(app_of([1.0], worker_memory()), context(), model())
    assert "layer.weight" in reply.content.array_records["arrays"]


def test_a_wrong_beta_is_refused_when_the_mod_is_made() -> None:
    with pytest.raises(ValueError, match="beta"):
        worker_momentum(beta=1.0)


def test_momentum_through_a_strategy() -> None:
    app = app_of([float(i % 2) for i in range(60)], worker_momentum(beta=0.9))
    grid = LocalGrid(app, {node: {} for node in range(1, 5)})
    strategy = RobustStrategy(FedAvg(fraction_evaluate=0.0), "geometric-median")
    result = strategy.start(grid, record(model()), 10)
    assert strategy.dropped == {}
    assert len(result.train_metrics_clientapp) == 10
