"""The tables of federated strategies: each function measures one, and returns its rows."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, FedMedian, MultiKrum, Strategy

from benchmarks.core import Table
from benchmarks.peak_memory import extra_bytes
from holdfast.federated import ExchangeStrategy, LocalGrid, RobustStrategy, worker_memory
from holdfast.lab.models import models
from holdfast.seeds import stream

TITLE = "Time and memory of federated strategies"

CLIENTS = (10, 20, 50, 100)
MODEL = "resnet-18"

WAYS: dict[str, Callable[[], Strategy]] = {
    "Flower FedAvg": FedAvg,
    "Flower FedMedian": FedMedian,
    "Flower MultiKrum": lambda: MultiKrum(num_malicious_nodes=2, num_nodes_to_select=5),
    "radius filter": lambda: RobustStrategy(FedAvg()),
    "geometric median": lambda: RobustStrategy(FedAvg(), "geometric-median"),
    "mixing, geometric median": lambda: RobustStrategy(
        FedAvg(), "mixing(bad_fraction=0.2) | geometric-median"
    ),
    "coordinate median": lambda: RobustStrategy(FedAvg(), "coordinate-median"),
    "exchange, 2 %": lambda: ExchangeStrategy(FedAvg()),
}

COPIES = {"Flower MultiKrum": 4.0, "Flower FedMedian": 2.0}
"""Copies of all replies that must fit into memory to measure a way; 1.5 for the others."""


def model_arrays() -> dict[str, np.ndarray[Any, Any]]:
    """The parameters and buffers of the model."""
    model = models[MODEL](generator=stream(0, "model"))
    return {name: value.numpy() for name, value in model.state_dict().items()}


def measure_round(way: str, n: int) -> dict[str, float]:
    """Seconds and bytes of one call of `aggregate_train` with n replies, in this process."""
    strategy, arrays = WAYS[way](), model_arrays()
    draw = np.random.default_rng(0)
    noise = {
        name: draw.normal(size=value.size).astype(value.dtype) for name, value in arrays.items()
    }
    app = ClientApp(mods=[worker_memory()])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        moved = {}
        for name, value in arrays.items():
            if value.dtype.kind == "f":
                own = np.roll(noise[name], 7919 * context.node_id).reshape(value.shape)
                value = value + np.float32(0.01) * (own + 1)
            moved[name] = Array(np.asarray(value))
        metrics = MetricRecord({"num-examples": 100 + context.node_id})
        return Message(
            RecordDict({"arrays": ArrayRecord(moved), "metrics": metrics}), reply_to=message
        )

    grid = LocalGrid(app, {node + 1: {} for node in range(n)})
    start = ArrayRecord({name: Array(value) for name, value in arrays.items()})
    messages = strategy.configure_train(1, start, ConfigRecord(), grid)
    replies: list[Message] = grid.send_and_receive(messages)
    for node in grid.contexts.values():  # memories of clients are not the server's
        node.state.clear()
    n_bytes = sum(
        len(array.data)
        for reply in replies
        for record in reply.content.array_records.values()
        for array in record.values()
    )
    seconds = []

    def aggregate() -> object:
        begun = time.perf_counter()
        result = strategy.aggregate_train(1, replies)
        seconds.append(time.perf_counter() - begun)
        return result

    extra = extra_bytes(aggregate)
    return {"seconds": seconds[0], "replies": n_bytes, "extra": extra}


def server_rounds() -> Iterator[dict[str, Any]]:
    """One round at the server, for n clients with all parameters of ResNet-18; two cores.

    Seconds and memory of `aggregate_train`, each in a fresh process. The extra memory is what the
    process holds at most beyond what it held when the replies had arrived, in copies of all
    replies: Flower's own strategies decode them beside the messages, ours replaces them as it goes.
    Cases that do not fit into the memory of the machine are left out.
    """
    for n in CLIENTS:
        for way in WAYS:
            needed = n * 44.7e6 * (1 + COPIES.get(way, 1.5))
            if needed > available_bytes():
                continue
            found = in_fresh_process(way, n)
            row: dict[str, Any] = {"clients": n, "way": way, "seconds": found["seconds"]}
            row["uplink_mb_per_client"] = found["replies"] / n / 1e6
            row["replies_gb"] = found["replies"] / 1e9
            row["extra_gb"] = found["extra"] / 1e9
            row["extra_copies"] = found["extra"] / found["replies"]
            yield row


def available_bytes() -> float:
    """Memory that can be used without swapping (Linux)."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("MemAvailable"))
    return 1024.0 * int(line.split()[1])


def in_fresh_process(way: str, n: int) -> dict[str, float]:
    code = (
        "import json, logging\n"
        "from benchmarks.federated import measure_round\n"
        "logging.disable(logging.WARNING)\n"
        f"print(json.dumps(measure_round({way!r}, {n})))\n"
    )
    # Freed memory goes back at once, so that only what is in use counts.
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"},
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


BARS = "Goals for the server: no second copy of all replies, and no more time than Flower's median."

TABLES: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {"server_rounds": server_rounds}


def bars(results: dict[str, Any]) -> Table:
    """The goals beside the figures."""
    table: Table = []
    rows = results.get("server_rounds", [])
    for row in rows:
        if row["way"] in ("radius filter", "geometric median"):
            what = f"{row['way']}, {row['clients']} clients, extra copies of all replies"
            measured = row["extra_copies"]
            table.append({"what": what, "bar": "below 1", "measured": measured})
            table[-1]["met"] = measured < 1
    for row in rows:
        peers = [
            other["seconds"]
            for other in rows
            if other["clients"] == row["clients"] and other["way"] == "Flower FedMedian"
        ]
        if row["way"] == "radius filter" and peers:
            ratio = row["seconds"] / peers[0]
            what = f"radius filter, {row['clients']} clients, time over Flower's FedMedian"
            table.append({"what": what, "bar": "at most 1", "measured": ratio, "met": ratio <= 1})
    return table
