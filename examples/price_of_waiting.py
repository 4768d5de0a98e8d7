r"""What the exchange costs when nobody lies: rounds and bytes until the model is good.

A perceptron with 64 hidden units on Fashion-MNIST, 20 honest workers with 32 samples each per
round, tested after every 10 rounds. Runs of the record are skipped. From the project's root:

    python -m examples.price_of_waiting --record docs/results/price_of_waiting.jsonl \
        --page docs/results/price_of_waiting.md
"""

import tempfile
from collections.abc import Mapping
from statistics import mean
from typing import Any, NamedTuple

from examples.run_records import Lines, Run, chosen, show_table, sweep_parser, swept

from holdfast.aggregators import rules
from holdfast.lab.config import Config, Workers
from holdfast.lab.optimizers import Sgd
from holdfast.lab.schemes import schemes
from holdfast.lab.training import run as train

TILES = "blockwise(tile=64) | geometric-median"


class Way(NamedTuple):
    """How workers send, the rule, the outer step, and the mean of the parameters over rounds."""

    scheme: str
    rule: str = TILES
    outer: Mapping[str, Any] = {}
    average: float = 0.0


WAYS = {
    "everything sent": Way("everything", "geometric-median"),
    "exchange, 10 %": Way("exchange(send=0.1)"),
    "exchange, 5 %": Way("exchange(send=0.05)"),
    "exchange, 2 %, no wait": Way("exchange(send=0.02, min_wait=1)"),
    "exchange, 2 %": Way("exchange(send=0.02)"),
    "exchange, 2 %, averaged": Way("exchange(send=0.02)", average=0.98),
    "exchange, 2 %, wait of 10": Way("exchange(send=0.02, min_wait=10)"),
    "exchange, 2 %, random block": Way("exchange(send=0.02, report_every=None)"),
    "exchange, 2 %, outer factor 1.5": Way("exchange(send=0.02)", outer={"outer_lr": 1.5}),
    "exchange, 2 %, outer momentum 0.5": Way(
        "exchange(send=0.02)", outer={"outer_lr": 0.5, "outer_momentum": 0.5}
    ),
    "exchange, 1 %": Way("exchange(send=0.01)"),
}
"""What is compared, by name."""

GOALS = [80, 85]


def measured(run: Run) -> Run:
    """The accuracy after every 10 rounds, in percent."""
    way = WAYS[run["way"]]
    config = Config(
        data="fashion-mnist",
        model="small-mlp",
        n_rows=20,
        row_size=32,
        n_steps=run["rounds"],
        rule=rules.parse(way.rule),
        optimizer=Sgd(lr=run["lr"]),
        workers=Workers(scheme=schemes.parse(way.scheme), **way.outer),
        average=way.average,
        evaluate_every=10,
        seed=run["seed"],
    )
    with tempfile.TemporaryDirectory() as folder:
        record = train(config, folder, checkpoint_seconds=1e9)
    curve = [round(100 * entry["accuracy"], 1) for entry in record.entries if "accuracy" in entry]
    return {"bytes": record.bytes_per_round, "curve": curve}


def table(done: list[Run]) -> Lines:
    """A line per way: rounds until each goal is reached for the first time, and bytes until
    then.
    """
    goals = [f"{what} to {goal} %" for goal in GOALS for what in ("rounds", "megabytes")]
    lines = [["way", "bytes per worker and round", *goals, "accuracy at the end"]]
    for way in WAYS:
        runs = chosen(done, way=way)
        if not runs:
            continue
        cells = []
        for goal in GOALS:
            first = [rounds_to(goal, run["curve"]) for run in runs]
            rounds = None if None in first else mean(n for n in first if n is not None)
            cells += ["not reached", ""] if rounds is None else [f"{rounds:.0f}"]
            cells += [] if rounds is None else [f"{rounds * runs[0]['bytes'] / 1e6:.1f}"]
        last = mean(run["curve"][-1] for run in runs)
        lines.append([way, f"{runs[0]['bytes']:,.0f}", *cells, f"{last:.1f}"])
    return lines


def rounds_to(goal: float, curve: list[float]) -> int | None:
    """The number of rounds until the accuracy was at least `goal`; None if it never was."""
    return next((10 * (i + 1) for i, value in enumerate(curve) if value >= goal), None)


def main() -> None:
    """Read the arguments, run, show."""
    parser = sweep_parser(__doc__, "price_of_waiting.jsonl")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate")
    parser.add_argument("--rounds", type=int, default=1000)
    given = parser.parse_args()
    runs: list[Run] = [
        {"way": way, "lr": given.lr, "rounds": given.rounds, "seed": seed}
        for seed in given.seeds
        for way in WAYS
    ]
    done = swept(given, runs, measured)
    show_table(table(done), given.page)


if __name__ == "__main__":
    main()
