"""Suspicion: bad clients are told from honest ones that differ, with 80 shards over 10 clients."""

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from torch import nn
from torch.nn.functional import cross_entropy

from holdfast.federated import LocalGrid, RobustStrategy
from holdfast.lab.data import load
from holdfast.lab.partitions import Shards
from holdfast.monitor import Suspect
from holdfast.seeds import stream

BAD = [3, 7]


def client_app(fault: str) -> ClientApp:
    """Logistic regression on label-sorted shards; two clients have a fault."""
    data = load("fashion-mnist-slice")
    inputs = data.normalize(data.train.scaled()).flatten(1)
    parts = Shards(n_shards=80).divide(data.train.labels, 10, generator=stream(0, "shards"))
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        i = int(context.node_config["partition-id"])
        record = message.content.array_records["arrays"]
        layer = nn.Linear(784, 10)
        layer.load_state_dict(record.to_torch_state_dict())
        before = {name: value.clone() for name, value in layer.state_dict().items()}
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
        draw = stream(message.metadata.dst_node_id, "batch", message.metadata.group_id)
        for _ in range(4):
            batch = parts[i][torch.randint(len(parts[i]), (32,), generator=draw)]
            optimizer.zero_grad()
            cross_entropy(layer(inputs[batch]), data.train.labels[batch]).backward()
            optimizer.step()
        sent = layer.state_dict()
        if i in BAD and fault == "times -10":
            sent = {
                name: before[name] - 10 * (value - before[name]) for name, value in sent.items()
            }
        if i in BAD and fault == "NaN":
            sent = {name: value * np.nan for name, value in sent.items()}
        arrays = ArrayRecord({name: Array(value.numpy()) for name, value in sent.items()})
        metrics = MetricRecord({"num-examples": len(parts[i])})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    return app


@pytest.mark.parametrize(
    ("fault", "share"), [("none", 1.0), ("none", 0.5), ("times -10", 0.5), ("NaN", 1.0)]
)
def test_bad_clients_are_named_and_honest_ones_that_differ_are_not(
    fault: str, share: float
) -> None:
    told: list[Suspect] = []
    grid = LocalGrid(client_app(fault), {2**63 + i: {"partition-id": i} for i in range(10)})
    strategy = RobustStrategy(
        FedAvg(fraction_train=share, fraction_evaluate=0.0), on_suspect=told.append
    )
    layer = nn.Linear(784, 10)
    start = ArrayRecord({name: Array(value.numpy()) for name, value in layer.state_dict().items()})
    strategy.start(grid, start, num_rounds=20 if share == 1.0 else 40)
    named = {suspect.row - 2**63 for suspect in strategy.suspects()}
    assert named == (set() if fault == "none" else set(BAD))
    assert {suspect.row - 2**63 for suspect in told} == named
    counts = {node - 2**63: count for node, count in strategy.counts.items()}
    assert len(counts) == 10
    honest = [counts[i] for i in range(10) if i not in BAD]
    assert max(honest) <= 2
    if fault != "none":
        assert min(counts[i] for i in BAD) >= 10
