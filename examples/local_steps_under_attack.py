r"""Workers that make H steps of AdamW between two rounds: accuracy against the bytes they send.

A perceptron with 64 hidden units on Fashion-MNIST, 20 workers, of which some always lie (`huddle`
along the spread of the honest updates, searched against the very rule). The exchange sends 2 % of
the update and takes a geometric median per tile; averaging sends everything and takes the mean.
Runs of the record are skipped. From the project's root:

    python -m examples.local_steps_under_attack --record docs/results/local_steps.jsonl \
        --page docs/results/local_steps.md
"""

import tempfile
import time

from examples.run_records import Lines, Run, accuracy_cell, chosen, show, sweep_parser, swept

from holdfast.aggregators import rules
from holdfast.lab.config import Config, Threat, Workers, parse_threat
from holdfast.lab.optimizers import AdamW
from holdfast.lab.schemes import schemes
from holdfast.lab.training import run as train
from holdfast.threats import Adversaries

WAYS = {
    "averaging, everything sent": ("everything", "mean"),
    "exchange, 2 %": ("exchange(send=0.02)", "blockwise(tile=64) | geometric-median"),
}
LOCAL_STEPS = [1, 5, 20]
LIARS = [0.0, 0.2, 0.4]
MARKS = [50, 100, 200]
"""Rounds after which the accuracy is shown."""


def measured(run: Run) -> Run:
    """Train as the run says: the accuracy in percent after every 25 rounds."""
    scheme, rule = WAYS[run["way"]]
    liars = Adversaries(bad_fraction=run["liars"], redrawn=False)
    attack = "huddle(direction='std')"
    config = Config(
        data="fashion-mnist",
        model="small-mlp",
        n_rows=20,
        row_size=32,
        n_steps=run["rounds"],
        rule=rules.parse(rule),
        optimizer=AdamW(lr=run["lr"]),
        workers=Workers(scheme=schemes.parse(scheme), local_steps=run["local steps"]),
        threat=parse_threat(attack, liars) if run["liars"] else Threat(),
        evaluate_every=25,
        seed=run["seed"],
    )
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        record = train(config, folder, checkpoint_seconds=1e9)
    curve = {
        entry["step"]: round(100 * entry["accuracy"], 2)
        for entry in record.entries
        if "accuracy" in entry
    }
    accuracy = None if record.accuracy is None else round(100 * record.accuracy, 2)
    found = {"accuracy": accuracy, "bytes": record.bytes_per_round, "curve": curve}
    return found | {"seconds": round(time.monotonic() - start, 1)}


def tables(done: list[Run]) -> dict[str, Lines]:
    """A table per share of liars: accuracy after some rounds, and what a worker sent until then."""
    found = {}
    for share in LIARS:
        head = ["way", "local steps", "bytes per worker and round"]
        lines = [[*head, *(f"after {mark} rounds" for mark in MARKS), "megabytes sent"]]
        for way in WAYS:
            for n_steps in LOCAL_STEPS:
                runs = chosen(done, way=way, liars=share, **{"local steps": n_steps})
                if not runs:
                    continue
                cells = [
                    accuracy_cell([run | {"accuracy": run["curve"].get(str(mark))} for run in runs])
                    for mark in MARKS
                ]
                sent = runs[0]["bytes"]
                total = f"{sent * runs[0]['rounds'] / 1e6:.1f}"
                lines.append([way, str(n_steps), f"{sent:,.0f}", *cells, total])
        found[f"{share:.0%} liars" if share else "Nobody lies"] = lines
    return found


def main() -> None:
    """Read the arguments, run, show."""
    parser = sweep_parser(__doc__, "local_steps.jsonl")
    parser.add_argument("--lr", type=float, default=1e-3, help="learning rate of AdamW")
    parser.add_argument("--rounds", type=int, default=200)
    given = parser.parse_args()
    runs: list[Run] = [
        {"way": way, "local steps": n_steps, "liars": share}
        | {"lr": given.lr, "rounds": given.rounds, "seed": seed}
        for seed in given.seeds
        for share in LIARS
        for n_steps in LOCAL_STEPS
        for way in WAYS
    ]
    done = swept(given, runs, measured)
    show(tables(done), given.page)


if __name__ == "__main__":
    main()
