r"""Flower's strategies and Holdfast's under attack: 20 clients, of which some always lie.

A perceptron with 64 hidden units on 6,000 images of Fashion-MNIST, 300 per client, local epochs in
every round. Strategies and client app are the real ones, the transport is a grid within the
process. Attacks on data are made by the clients. Attacks that need the updates of others are made
at the server's door: the attackers see what honest clients send, know the rule, and answer in the
same round. Runs of the record are skipped, so the sweep can be stopped and started again. From the
project's root:

    python -m examples.flower_under_attack --ways FedAvg "radius filter" \
        --attacks none "scaled flip"
    python -m examples.flower_under_attack --record docs/results/flower_under_attack.jsonl \
        --page docs/results/flower_under_attack.md
"""

import argparse
import logging
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from examples.run_records import Lines, Run, chosen, show, sweep_parser, swept
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.app.user_config import UserConfig
from flwr.clientapp import ClientApp
from flwr.serverapp.exception import InconsistentMessageReplies
from flwr.serverapp.strategy import (
    Bulyan,
    FedAvg,
    FedMedian,
    FedTrimmedAvg,
    Krum,
    MultiKrum,
    Strategy,
)
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from holdfast.federated import (
    ExchangeStrategy,
    LocalGrid,
    RobustStrategy,
    worker_memory,
    worker_momentum,
)
from holdfast.lab.data import DataSet, load
from holdfast.lab.models import models
from holdfast.lab.partitions import partitions
from holdfast.seeds import stream
from holdfast.threats import attacks, corruptions

N_CLIENTS = 20
BATCH = 32
SMALL, CLAIMED = 18, 10_000_000
"""Samples of the small site, and what it claims to have."""

VALUES = "holdfast.exchange.values"
TILES = "blockwise(tile=64) | geometric-median"
NO_EVALUATION: dict[str, Any] = {"fraction_evaluate": 0.0}


def wrapped(rule: str) -> tuple[Callable[[int], Strategy], Callable[[int], str]]:
    """A robust strategy, and its rule as attackers know it."""
    return (
        lambda n_bad: RobustStrategy(FedAvg(**NO_EVALUATION), rule.format(n_bad / N_CLIENTS)),
        lambda n_bad: rule.format(n_bad / N_CLIENTS),
    )


# Bulyan needs 4 f + 3 clients, so it can be told of at most 4 of 20.
WAYS: dict[str, tuple[Callable[[int], Strategy], Callable[[int], str]]] = {
    "FedAvg": (lambda _: FedAvg(**NO_EVALUATION), lambda _: "mean"),
    "FedMedian": (lambda _: FedMedian(**NO_EVALUATION), lambda _: "coordinate-median"),
    "FedTrimmedAvg": (
        lambda n_bad: FedTrimmedAvg(beta=n_bad / N_CLIENTS, **NO_EVALUATION),
        lambda n_bad: f"trimmed-mean(n_bad={n_bad})",
    ),
    "Krum": (
        lambda n_bad: Krum(num_malicious_nodes=n_bad, **NO_EVALUATION),
        lambda n_bad: f"krum(n_bad={n_bad})",
    ),
    "MultiKrum": (
        lambda n_bad: MultiKrum(
            num_malicious_nodes=n_bad, num_nodes_to_select=N_CLIENTS - n_bad, **NO_EVALUATION
        ),
        lambda n_bad: f"multi-krum(n_bad={n_bad})",
    ),
    "Bulyan": (
        lambda n_bad: Bulyan(num_malicious_nodes=min(n_bad, 4), **NO_EVALUATION),
        lambda n_bad: f"bulyan(n_bad={min(n_bad, 4)})",
    ),
    "radius filter": wrapped("radius-filter"),
    "geometric median": wrapped("geometric-median"),
    "mixing, geometric median": wrapped("mixing(bad_fraction={}) | geometric-median"),
    "radius filter, client momentum": wrapped("radius-filter"),
    "mixing, geometric median, client momentum": wrapped(
        "mixing(bad_fraction={}) | geometric-median"
    ),
    "exchange, 2 %": (lambda _: ExchangeStrategy(FedAvg(**NO_EVALUATION)), lambda _: TILES),
    "exchange, 2 %, beta 1": (
        lambda _: ExchangeStrategy(FedAvg(**NO_EVALUATION), beta=1.0),
        lambda _: TILES,
    ),
    "exchange, 10 %": (
        lambda _: ExchangeStrategy(FedAvg(**NO_EVALUATION), send=0.1, beta=1.0),
        lambda _: TILES,
    ),
}
"""For each way, the strategy for a number of liars, and the rule that attackers search against."""

NONE, SMALL_SITE = "none", "small site"
AT_THE_DOOR = {
    "noise": "noisy-rows",
    "scaled flip": "scaled-flip",
    "ALIE, optimized": "little-is-enough(z='optimized')",
    "huddle: mean": "huddle(direction='mean')",
    "huddle: std": "huddle(direction='std')",
}
"""Attacks on updates; noise and scaled flip are the paper's."""

ON_DATA = {
    "blur": "blur",
    "salt and pepper": "salt-and-pepper",
    "one label": "wrong-labels(labels=8)",
}
"""Corruptions of the liars' data, the paper's."""

FAULTS: dict[str, Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any] | None]] = {
    "NaN": lambda array: np.full_like(array, np.nan),
    "huge": lambda array: np.full_like(array, 1e30),
    "malformed": lambda _: None,
}
"""What becomes of a liar's array; None for one that is missing."""

ATTACKS = [NONE, *AT_THE_DOOR, *ON_DATA, *FAULTS, SMALL_SITE]


@cache
def dataset(name: str) -> DataSet:
    """The data set, which is read once."""
    return load(name)


class Clients:
    """The clients of one run: a client app with their data, and the attackers among them."""

    def __init__(self, run: Run, rule: str) -> None:
        self.n_bad = 1 if run["attack"] == SMALL_SITE else round(run["liars"] * N_CLIENTS)
        self.n_bad = 0 if run["attack"] == NONE else self.n_bad
        self.attack, self.rule, self.seed = run["attack"], rule, run["seed"]
        self.data, self.lr, self.epochs = dataset(run["data"]), run["lr"], run["epochs"]
        inputs, labels = self.data.train.scaled(), self.data.train.labels
        draw = stream(self.seed, "partition")
        divided = partitions.parse(run["partition"]).divide(labels, N_CLIENTS, generator=draw)
        if len(divided) == 1:  # "shuffled": all rows draw from all samples; here each has its own
            divided = list(torch.randperm(len(labels), generator=draw).chunk(N_CLIENTS))
        self.parts = [(inputs[part], labels[part]) for part in divided]
        if self.attack == SMALL_SITE:
            inputs, labels = self.parts[0]
            self.parts[0] = (inputs[:SMALL], labels[:SMALL])
        if self.attack in ON_DATA:
            corrupt = corruptions.parse(ON_DATA[self.attack])
            for i in range(self.n_bad):
                everything = torch.ones(len(self.parts[i][1]), dtype=torch.bool)
                noise = stream(self.seed, "corruption", i) if corrupt.needs_generator else None
                self.parts[i] = corrupt(*self.parts[i], everything, generator=noise)
        self.parts = [(self.data.normalize(inputs), labels) for inputs, labels in self.parts]
        self.model = models["small-mlp"](generator=stream(self.seed, "model"))
        self.global_arrays: dict[str, Tensor] = {}
        self.state: Any = None
        keeps_momentum = run["way"].endswith("client momentum")
        self.app = ClientApp(
            mods=[worker_momentum(beta=0.9) if keeps_momentum else worker_memory()]
        )
        self.app.train()(self.train)

    def train(self, message: Message, context: Context) -> Message:
        """Local epochs of plain gradient descent."""
        self.global_arrays = message.content.array_records["arrays"].to_torch_state_dict()
        self.model.load_state_dict(self.global_arrays)
        i, server_round = int(context.node_config["partition-id"]), message.content["config"]
        inputs, labels = self.parts[i]
        draw = stream(self.seed, "batches", i, int(server_round["server-round"]))  # type: ignore[arg-type]
        parameters: list[Tensor] = list(self.model.parameters())
        for _ in range(self.epochs):
            for batch in torch.randperm(len(labels), generator=draw).split(BATCH):
                loss = cross_entropy(self.model(inputs[batch]), labels[batch])
                slopes = torch.autograd.grad(loss, parameters)
                with torch.no_grad():
                    torch._foreach_add_(parameters, slopes, alpha=-self.lr)
        claim = CLAIMED if self.attack == SMALL_SITE and i == 0 else len(labels)
        metrics = MetricRecord({"num-examples": claim})
        return Message(
            RecordDict({"arrays": record(self.model), "metrics": metrics}), reply_to=message
        )

    def door(self, replies: list[Message]) -> list[Message]:
        """The replies after the attack; clients from 1 to `n_bad` are the liars."""
        replies = sorted(replies, key=lambda reply: reply.metadata.src_node_id)
        for reply in replies:
            if reply.has_error():  # a mistake in this experiment, which no strategy must hide
                raise RuntimeError(reply.error.reason)
        if self.n_bad and self.attack in FAULTS:
            for reply in replies[: self.n_bad]:
                self.fault(reply.content.array_records["arrays"])
        if self.n_bad and self.attack in AT_THE_DOOR and replies:
            self.lie(replies)
        return replies

    def fault(self, arrays: ArrayRecord) -> None:
        """A reply that is broken."""
        name = VALUES if VALUES in arrays else next(iter(arrays))
        broken = FAULTS[self.attack](as_floats(arrays, name))
        if broken is None:
            del arrays[name]
        else:
            arrays[name] = as_array(broken, name)

    def lie(self, replies: list[Message]) -> None:
        """An attack on the rows that the rule will get."""
        records = [reply.content.array_records["arrays"] for reply in replies]
        names = [VALUES] if VALUES in records[0] else list(self.global_arrays)
        origin = {name: self.global_arrays.get(name, torch.zeros(())) for name in names}
        rows = [
            torch.stack([torch.tensor(as_floats(one, name)) for one in records]) - origin[name]
            for name in names
        ]
        mask = torch.arange(N_CLIENTS) < self.n_bad
        attack = attacks.parse(AT_THE_DOOR[self.attack])
        generator = stream(self.seed, "attack", replies[0].metadata.group_id)
        known = {"generator": generator, "rule": self.rule}
        sent = attack(rows, mask, state=self.state, **known)  # type: ignore[arg-type]
        self.state = attack.learn(rows, mask, self.state, **known)  # type: ignore[arg-type]
        for name, tensor in zip(names, sent, strict=True):
            for i in range(self.n_bad):
                records[i][name] = as_array((tensor[i] + origin[name]).numpy(), name)


def as_floats(arrays: ArrayRecord, name: str) -> np.ndarray[Any, Any]:
    """The numbers of an array; the values of an exchange travel as bytes."""
    numbers = arrays[name].numpy().copy()
    return numbers.view(np.float32) if name == VALUES else numbers


def as_array(numbers: np.ndarray[Any, Any], name: str) -> Array:
    """The same as an array of a reply."""
    return Array(numbers.view(np.uint8) if name == VALUES else numbers)


def record(model: nn.Module) -> ArrayRecord:
    """The parameters of a model."""
    return ArrayRecord({name: Array(value.numpy()) for name, value in model.state_dict().items()})


def measured(run: Run) -> Run:
    """Train as the run says: the accuracy in percent, or the error that ended the run."""
    make_strategy, rule = WAYS[run["way"]]
    n_bad = round(run["liars"] * N_CLIENTS)
    clients = Clients(run, rule(n_bad))
    nodes: dict[int, UserConfig] = {i + 1: {"partition-id": i} for i in range(N_CLIENTS)}
    grid = LocalGrid(clients.app, nodes, door=clients.door)
    test = clients.data.test
    inputs, labels = clients.data.normalize(test.scaled()), test.labels
    curve: list[float] = []

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        clients.model.load_state_dict(arrays.to_torch_state_dict())
        with torch.no_grad():
            right = (clients.model(inputs).argmax(1) == labels).double().mean()
        curve.append(round(100 * float(right), 2))
        return MetricRecord({"accuracy": float(right)})

    start, error, n_bytes = time.monotonic(), None, None
    strategy = make_strategy(n_bad)
    try:
        result = strategy.start(grid, record(clients.model), run["rounds"], evaluate_fn=evaluate)
        metrics = result.train_metrics_clientapp[run["rounds"]]
        if "holdfast-good" in metrics:
            n_bytes = max(metrics["holdfast-bytes"])  # type: ignore[arg-type]
    except InconsistentMessageReplies as raised:  # of Flower's own strategies: it ends the run
        error = type(raised).__name__
    found = {"accuracy": None if error else curve[-1], "error": error, "curve": curve[5::5]}
    if isinstance(strategy, (RobustStrategy, ExchangeStrategy)):
        found |= {"counts": [strategy.counts.get(i + 1, 0) for i in range(N_CLIENTS)]}
    return found | {"bytes": n_bytes, "seconds": round(time.monotonic() - start, 1)}


def plan(given: argparse.Namespace) -> list[Run]:
    """The settings of all runs, the first seed of everything first."""
    return [
        {"data": given.data, "partition": partition, "liars": liars, "way": way, "attack": attack}
        | {"rounds": given.rounds, "epochs": given.epochs, "lr": given.lr, "seed": seed}
        for seed in given.seeds
        for partition in given.partitions
        for liars in given.liars
        for attack in given.attacks
        for way in given.ways
    ]


def cell(runs: list[Run]) -> str:
    """The mean accuracy over seeds, or the error that ended the run."""
    errors = [run["error"] for run in runs if run["error"]]
    if errors:
        return f"ends ({errors[0]})"
    return f"{sum(run['accuracy'] for run in runs) / len(runs):.1f}" if runs else ""


def tables(done: list[Run]) -> dict[str, Lines]:
    """A table per setting: a line per way, a column per attack."""
    found = {}
    for partition, liars in sorted({(run["partition"], run["liars"]) for run in done}):
        same = chosen(done, partition=partition, liars=liars)
        names = [name for name in ATTACKS if chosen(same, attack=name)]
        lines = [["way", "bytes per client and round", *names]]
        for way in WAYS:
            runs = chosen(same, way=way)
            if runs:
                sent = [run["bytes"] for run in runs if run["bytes"]]
                cells = [cell([run for run in runs if run["attack"] == name]) for name in names]
                lines.append([way, f"{sent[0]:,.0f}" if sent else "", *cells])
        found[f"{partition}, {liars:.0%} liars"] = lines
    return found


def main() -> None:
    """Read the arguments, run, show."""
    parser = sweep_parser(__doc__, "flower_under_attack.jsonl")
    ways = list(WAYS)
    parser.add_argument("--ways", nargs="+", choices=ways, default=ways, metavar="WAY")
    parser.add_argument("--attacks", nargs="+", choices=ATTACKS, default=ATTACKS, metavar="ATTACK")
    default = ["shuffled"]
    parser.add_argument("--partitions", nargs="+", default=default, help="as in `holdfast train`")
    parser.add_argument(
        "--liars", type=float, nargs="+", default=[0.4], help="share of the clients"
    )
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--epochs", type=int, default=1, help="local epochs per round")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--data", default="fashion-mnist-slice")
    given = parser.parse_args()
    for name in ("flwr", "holdfast"):
        logging.getLogger(name).setLevel(logging.ERROR)
    np.seterr(all="ignore")  # of Flower's strategies, which multiply what is not finite
    done = swept(given, plan(given), measured)
    asked = {key: getattr(given, key) for key in ("data", "rounds", "epochs", "lr")}
    show(tables(chosen(done, **asked)), given.page)


if __name__ == "__main__":
    main()
