r"""The exchange and its rivals under the attacks that decide: 20 workers, of which some always lie.

A perceptron with 64 hidden units (or LeNet) on Fashion-MNIST, 400 rounds, 32 samples per worker and
round. Attackers see what honest workers send, know the rule and all it is given, and answer in the
same round. The worth of a way is its least accuracy over all attacks. Runs of the record are
skipped, so the sweep can be stopped and started again, and several may share a record. From the
project's root:

    python -m examples.exchange_under_attack --ways "exchange, 2 %" --attacks "huddle: std"
    python -m examples.exchange_under_attack --record docs/results/exchange_under_attack.jsonl \
        --page docs/results/exchange_under_attack.md
"""

import argparse
import tempfile
import time
from dataclasses import replace
from statistics import mean
from typing import NamedTuple

from examples.run_records import Lines, Run, accuracy_cell, chosen, show, sweep_parser, swept

from holdfast.aggregators import rules
from holdfast.lab.config import Config, Threat, Workers, parse_threat
from holdfast.lab.optimizers import Sgd
from holdfast.lab.partitions import partitions
from holdfast.lab.schemes import schemes
from holdfast.lab.training import run as train
from holdfast.threats import Adversaries, report_lies

TILES = "blockwise(tile=64) | geometric-median"
PARAMETERS = "blockwise(tile='parameter') | geometric-median"
MEDIAN = "geometric-median"
MIXING = "mixing(bad_fraction=0.4) | geometric-median"
MIXING_TILES = f"blockwise(tile=64) | {MIXING}"
FILTER = "covariance-filter"
FILTER_PARAMETERS = f"blockwise(tile='parameter') | {FILTER}"

EXCHANGE = "exchange(send=0.02)"
ROSDHB = "rosdhb(send=0.02, momentum={})"
BYZ_EF21 = "byz-ef21(send=0.02, momentum={})"


class Way(NamedTuple):
    """How workers send, the rule, their momentum, and the weight of the past in the mean model."""

    scheme: str
    rule: str = TILES
    momentum: float = 0.0
    average: float = 0.0


WAYS = {
    "everything sent": Way("everything", MEDIAN),
    "everything sent, mixing": Way("everything", MIXING),
    "everything sent, covariance filter": Way("everything", FILTER),
    "worker momentum 0.9": Way("everything", MEDIAN, 0.9),
    "worker momentum 0.9, averaged": Way("everything", MEDIAN, 0.9, 0.98),
    "worker momentum 0.9, mixing": Way("everything", MIXING, 0.9),
    "worker momentum 0.9, mixing, averaged": Way("everything", MIXING, 0.9, 0.98),
    "worker momentum 0.9, tiles": Way("everything", TILES, 0.9),
    "worker momentum 0.9, covariance filter, averaged": Way("everything", FILTER, 0.9, 0.98),
    "worker momentum 0.99": Way("everything", MEDIAN, 0.99),
    "exchange, 10 %": Way("exchange(send=0.1)"),
    "exchange, 2 %": Way(EXCHANGE),
    "exchange, 2 %, averaged": Way(EXCHANGE, average=0.98),
    "exchange, 2 %, per parameter, averaged": Way(EXCHANGE, PARAMETERS, average=0.98),
    "exchange, 2 %, covariance filter": Way(EXCHANGE, FILTER),
    "exchange, 2 %, covariance filter, averaged": Way(EXCHANGE, FILTER, average=0.98),
    "exchange, 2 %, covariance filter per parameter, averaged": Way(
        EXCHANGE, FILTER_PARAMETERS, average=0.98
    ),
    "exchange, 1 %": Way("exchange(send=0.01)"),
    "exchange, 2 %, mixing": Way(EXCHANGE, MIXING_TILES),
    "exchange, 2 %, mixing, averaged": Way(EXCHANGE, MIXING_TILES, average=0.98),
    "exchange, 2 %, one median": Way(EXCHANGE, MEDIAN),
    "exchange, 2 %, no wait": Way("exchange(send=0.02, min_wait=1)"),
    "random block, 2 %": Way("exchange(send=0.02, report_every=None)"),
    "RoSDHB 0.9": Way(ROSDHB.format(0.9), MEDIAN),
    "RoSDHB 0.9, mixing": Way(ROSDHB.format(0.9), MIXING),
    "RoSDHB 0.9, covariance filter": Way(ROSDHB.format(0.9), FILTER),
    "RoSDHB 0.99": Way(ROSDHB.format(0.99), MEDIAN),
    "Byz-EF21 0.9": Way(BYZ_EF21.format(0.9), MEDIAN),
    "Byz-EF21 0.9, mixing": Way(BYZ_EF21.format(0.9), MIXING),
    "Byz-EF21 0.9, covariance filter": Way(BYZ_EF21.format(0.9), FILTER),
    "Byz-EF21 0.9, tiles": Way(BYZ_EF21.format(0.9)),
    "Byz-EF21 0.99": Way(BYZ_EF21.format(0.99), MEDIAN),
    "norm-filtered, 2 %": Way("norm-filtered(send=0.02)", "norm-filter(bad_fraction=0.4)"),
    "scatter mean, 2 %": Way("scatter-mean(send=0.02)", "mean"),
}
"""What is compared, by name."""

NONE = "none"
LIES = ["huge", "zero", "nan", "starve", "low-signal"]
ATTACKS = {
    NONE: None,
    "huddle: mean": "huddle(direction='mean')",
    "huddle: std": "huddle(direction='std')",
    "huddle: true gradient": "huddle(direction='true-gradient')",
    "huddle: wrong labels": "huddle(direction='wrong-labels')",
    "huddle: first layer": "huddle(direction='first-layer')",
    "huddle: one class": "huddle(direction='class')",
    "huddle: drift": "huddle(direction='drift')",
    "ALIE, optimized": "little-is-enough(z='optimized')",
    "IPM, optimized": "inner-product(factor='optimized')",
    "min-max": "bounded-distance",
    "scaled flip": "scaled-flip",
    "huddle: std, late": "late(start=200) | huddle(direction='std')",
    **{f"huddle: std, reports {lie}": "huddle(direction='std')" for lie in LIES},
}


def measured(run: Run) -> Run:
    """Train as the run says: the accuracy in percent, None if it diverged."""
    way = WAYS[run["way"]]
    attack = ATTACKS[run["attack"]]
    liars = Adversaries(bad_fraction=run["liars"], redrawn=False)
    threat = Threat() if attack is None else parse_threat(attack, liars)
    *_, lie = run["attack"].split("reports ")
    if lie in LIES:
        threat = replace(threat, lie=report_lies.parse(lie))
    config = Config(
        data="fashion-mnist",
        model=run["model"],
        partition=partitions.parse(run["partition"]),
        n_rows=20,
        row_size=32,
        n_steps=run["steps"],
        rule=rules.parse(way.rule),
        worker_momentum=way.momentum,
        optimizer=Sgd(lr=run["lr"]),
        workers=Workers(scheme=schemes.parse(way.scheme)),
        threat=threat,
        average=way.average,
        evaluate_every=50,
        seed=run["seed"],
    )
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        record = train(config, folder, checkpoint_seconds=1e9)
    accuracy = None if record.accuracy is None else round(100 * record.accuracy, 2)
    curve = [round(100 * entry["accuracy"], 1) for entry in record.entries if "accuracy" in entry]
    found = {"accuracy": accuracy, "bytes": record.bytes_per_round, "curve": curve}
    return found | {"seconds": round(time.monotonic() - start, 1)}


def plan(given: argparse.Namespace) -> list[Run]:
    """The settings of all runs, the first seed of everything first."""
    return [
        {"model": given.model, "partition": given.partition, "liars": given.liars}
        | {"way": way, "attack": attack, "lr": lr, "steps": given.steps, "seed": seed}
        for seed in given.seeds
        for lr in given.lr
        for attack in given.attacks
        for way in given.ways
    ]


def least_accuracy(done: list[Run]) -> Lines:
    """One line per setting and way: bytes, clean accuracy, the least accuracy and its attack."""
    head = ["model", "data", "liars", "lr", "way", "bytes per worker and round", "clean", "least"]
    lines = [[*head, "attack", "attacks tried"]]
    settings = {(run["model"], run["partition"], run["liars"], run["lr"]) for run in done}
    for model, partition, liars, lr in sorted(settings):
        same = chosen(done, model=model, partition=partition, liars=liars, lr=lr)
        for way in WAYS:
            cells = {name: chosen(same, way=way, attack=name) for name in ATTACKS}
            clean = cells.pop(NONE)
            tried = {name: runs for name, runs in cells.items() if runs}
            if not clean or not tried:
                continue
            worst = min(tried, key=lambda name: worth(tried[name]))
            lines.append([model, partition, f"{liars:.0%}", f"{lr:g}", way])
            lines[-1] += [f"{clean[0]['bytes']:,.0f}", accuracy_cell(clean)]
            lines[-1] += [accuracy_cell(tried[worst]), worst, str(len(tried))]
    return lines


def worth(runs: list[Run]) -> float:
    """The mean accuracy over seeds; a run that diverged has none."""
    return mean(run["accuracy"] or 0.0 for run in runs)


def every_accuracy(done: list[Run]) -> dict[str, Lines]:
    """A table per setting: a line per attack, a column per way."""
    tables = {}
    settings = {(run["model"], run["partition"], run["liars"], run["lr"]) for run in done}
    for model, partition, liars, lr in sorted(settings):
        same = chosen(done, model=model, partition=partition, liars=liars, lr=lr)
        ways = [way for way in WAYS if chosen(same, way=way)]
        lines = [["attack", *ways]]
        for attack in ATTACKS:
            cells = [accuracy_cell(chosen(same, way=way, attack=attack)) for way in ways]
            lines += [[attack, *cells]] if any(cells) else []
        tables[f"{model}, {partition}, {liars:.0%} liars, learning rate {lr:g}"] = lines
    return tables


def main() -> None:
    """Read the arguments, run, show."""
    parser = sweep_parser(__doc__, "exchange_under_attack.jsonl")
    ways, attacks = list(WAYS), list(ATTACKS)
    parser.add_argument("--ways", nargs="+", choices=ways, default=ways, metavar="WAY")
    parser.add_argument("--attacks", nargs="+", choices=attacks, default=attacks, metavar="ATTACK")
    parser.add_argument("--model", default="small-mlp", help="small-mlp or lenet")
    parser.add_argument("--partition", default="shuffled", help="as in `holdfast train`")
    parser.add_argument("--liars", type=float, default=0.4, help="share of the workers")
    parser.add_argument("--lr", type=float, nargs="+", default=[0.05], help="learning rates")
    parser.add_argument("--steps", type=int, default=400)
    given = parser.parse_args()
    done = swept(given, plan(given), measured)
    done = [run for run in done if run["steps"] == given.steps]
    show({"Least accuracy in percent": least_accuracy(done)} | every_accuracy(done), given.page)


if __name__ == "__main__":
    main()
