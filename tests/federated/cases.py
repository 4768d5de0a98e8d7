"""Models, clients and replies for the tests of strategies."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from holdfast.federated import LocalGrid

Arrays = dict[str, NDArray[Any]]

NODES = [2**63 + 11 * i for i in range(10)]
"""Ids as Flower draws them: 64 bits without a sign."""


def model(seed: int = 0) -> Arrays:
    """A model with two dtypes, an array without dimensions, and a counter."""
    draw = np.random.default_rng(seed)
    return {
        "layer.weight": draw.normal(size=(4, 3)).astype(np.float32),
        "layer.bias": draw.normal(size=4).astype(np.float16),
        "norm.num_batches_tracked": np.asarray(7),
        "scale": np.asarray(1.5, np.float32),
    }


def record(arrays: Mapping[str, NDArray[Any]]) -> ArrayRecord:
    return ArrayRecord({name: Array(value) for name, value in arrays.items()})


def numbers(arrays: ArrayRecord | None) -> Arrays:
    assert arrays is not None
    return {name: array.numpy() for name, array in arrays.items()}


def ask(
    strategy: Strategy, arrays: Arrays, nodes: Sequence[int] = NODES, server_round: int = 1
) -> dict[int, Message]:
    """The messages of a round of training, by node."""
    grid = LocalGrid(ClientApp(), {node: {} for node in nodes})
    messages = strategy.configure_train(server_round, record(arrays), ConfigRecord(), grid)
    return {message.metadata.dst_node_id: message for message in messages}


def answer(
    message: Message, arrays: Mapping[str, NDArray[Any]] | ArrayRecord, **metrics: Any
) -> Message:
    """A reply; the number of examples is 10 if it is not among the metrics."""
    content = arrays if isinstance(arrays, ArrayRecord) else record(arrays)
    numbers = {"num-examples": 10} | {name.replace("_", "-"): v for name, v in metrics.items()}
    return Message(
        RecordDict({"arrays": content, "metrics": MetricRecord(numbers)}), reply_to=message
    )


def moved(arrays: Arrays, node: int, *, scale: float = 0.1) -> Arrays:
    """The model of an honest client."""
    draw = np.random.default_rng(node % 997)
    new = {}
    for name, value in arrays.items():
        if value.dtype.kind == "f":
            step = 1.0 + 0.2 * draw.normal(size=value.shape)
            new[name] = np.asarray(value + scale * step, value.dtype)
        else:
            new[name] = np.asarray(value + 3 + int(draw.integers(2)))
    return new


def same(one: Arrays, other: Arrays) -> bool:
    """Whether two models are equal in names, dtypes, shapes and bits."""
    return set(one) == set(other) and all(
        one[name].dtype == other[name].dtype
        and one[name].shape == other[name].shape
        and one[name].tobytes() == other[name].tobytes()
        for name in one
    )
