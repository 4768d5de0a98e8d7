r"""Ten clients with unlike data, some of which are always bad: the protocol of the paper's Table 4.

CIFAR-10 in 80 shards sorted by label, 8 per client, as in the paper; a network of three
convolutions and 32 samples per client and step, as two cores allow. The paper draws the bad clients
anew at every step; here they are the same all the time, as clients are. Attacks are the paper's.
Runs of the record are skipped. From the project's root:

    python -m examples.clients_that_differ --record docs/results/clients_that_differ.jsonl \
        --page docs/results/clients_that_differ.md
"""

import tempfile
import time
from typing import Any

from examples.run_records import Lines, Run, accuracy_cell, chosen, show_table, sweep_parser, swept

from holdfast.aggregators import rules
from holdfast.lab.config import Config, Threat, Workers, parse_rule, parse_threat
from holdfast.lab.optimizers import Sgd
from holdfast.lab.partitions import Shards
from holdfast.lab.schemes import schemes
from holdfast.lab.training import run as train
from holdfast.threats import Adversaries

STEPS = {"SGD": "mean", "GmD": "geometric-median", "BGmD": "bgmd(fraction=0.1)"}
"""Every client sends its gradient, and a preset or a rule makes the step."""

EXCHANGES = {
    "exchange, 10 %": ("exchange(send=0.1)", 0.0),
    "exchange, 10 %, averaged": ("exchange(send=0.1)", 0.98),
    "exchange, 2 %": ("exchange(send=0.02)", 0.0),
    "exchange, 2 %, averaged": ("exchange(send=0.02)", 0.98),
}
"""How clients send, and the weight of the past in the mean of the parameters over steps."""

METHODS = [*STEPS, *EXCHANGES]

ATTACKS = {"additive noise": "noisy-rows(deviation=10)", "scaled flip": "scaled-flip(factor=100)"}
THREATS = [("none", 0.0), *((name, share) for name in ATTACKS for share in (0.2, 0.4))]


def measured(run: Run) -> Run:
    """Train as the run says: the accuracy in percent, None if it diverged."""
    liars = Adversaries(bad_fraction=run["share"], redrawn=False)
    parts: dict[str, Any] = {}
    if run["method"] in STEPS:
        parts = parse_rule(STEPS[run["method"]])
    else:
        scheme, parts["average"] = EXCHANGES[run["method"]]
        parts["workers"] = Workers(scheme=schemes.parse(scheme))
        parts["rule"] = rules.parse("blockwise(tile=64) | geometric-median")
    config = Config(
        data="cifar-10",
        model="small-cnn",
        partition=Shards(n_shards=80),
        n_rows=10,
        row_size=32,
        n_steps=run["steps"],
        optimizer=Sgd(lr=run["lr"], weight_decay=1e-4),
        threat=parse_threat(ATTACKS[run["threat"]], liars) if run["share"] else Threat(),
        evaluate_every=100,
        seed=run["seed"],
        **parts,
    )
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        record = train(config, folder, checkpoint_seconds=1e9)
    accuracy = None if record.accuracy is None else round(100 * record.accuracy, 2)
    return {"accuracy": accuracy, "seconds": round(time.monotonic() - start, 1)}


def table(done: list[Run]) -> Lines:
    """A line per threat, a column per method."""
    lines = [["threat", "bad clients", *METHODS]]
    for threat, share in THREATS:
        cells = [
            accuracy_cell(chosen(done, threat=threat, share=share, method=method))
            for method in METHODS
        ]
        lines.append([threat, f"{share:.0%}", *cells])
    return lines


def main() -> None:
    """Read the arguments, run, show."""
    parser = sweep_parser(__doc__, "clients_that_differ.jsonl")
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate, the paper's is 0.1")
    parser.add_argument("--steps", type=int, default=600)
    given = parser.parse_args()
    runs: list[Run] = [
        {"threat": threat, "share": share, "method": method}
        | {"lr": given.lr, "steps": given.steps, "seed": seed}
        for seed in given.seeds
        for threat, share in THREATS
        for method in METHODS
    ]
    done = swept(given, runs, measured)
    show_table(table(done), given.page)


if __name__ == "__main__":
    main()
