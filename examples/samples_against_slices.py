r"""Rows of single samples against rows of slices: LeNet on batches with 40 % corrupted images.

All ways get the same budget, in plain steps of the same batch: the number of steps is the budget
divided by the cost of one step (docs/benchmarks/training.md). Runs of the record are skipped, so
the sweep can be stopped and started again.

    python examples/samples_against_slices.py --seeds 1 --corruptions noise
    python examples/samples_against_slices.py --record docs/results/samples_against_slices.jsonl \
        --page docs/results/samples_against_slices.md
"""

import argparse
import json
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn

from holdfast import RobustStep
from holdfast.aggregators import rules
from holdfast.lab.data import fashion_mnist_slice
from holdfast.lab.models import lenet
from holdfast.seeds import stream
from holdfast.sources import LayerGrams, MicroBatches
from holdfast.threats import Adversaries, corruptions

BATCH, SHARE, N_SLICES = 128, 0.4, 16
MEAN, DEVIATION = 0.286, 0.353  # of the pixels

WAYS = {
    "slices, mean": ("slices", "mean", 1.0),
    "slices, median": ("slices", "geometric-median", 1.9),
    "samples, median": ("samples", "geometric-median", 2.2),
    "samples, clipped mean": ("samples", "clipping(n_bad=51) | mean", 1.7),
    "samples, norm filter": ("samples", "norm-filter(n_bad=51)", 1.7),
}
"""The rows, the rule, and the cost of a step in plain steps (the mean of slices is one)."""

CORRUPTIONS = {
    "none": None,
    "noise": "gaussian-noise(deviation=10.0)",
    "salt and pepper": "salt-and-pepper(fraction=0.9)",
    "label flip": "wrong-labels(labels='flip')",
    "random labels": "wrong-labels(labels='random')",
    "target label": "wrong-labels(labels=8)",
}


def train(way: str, corruption: str, seed: int, budget: int) -> float:
    """Test accuracy in percent at the end of the budget."""
    data, test = fashion_mnist_slice("train"), fashion_mnist_slice("test")
    images, generator = data.scaled(), stream(seed, "training")
    model: Any = lenet(generator=stream(seed, "model"))
    model = model.to(memory_format=torch.channels_last)
    rows, rule, cost = WAYS[way]
    loss_fn = nn.CrossEntropyLoss()
    source = (
        LayerGrams(model, loss_fn)
        if rows == "samples"
        else MicroBatches(model, loss_fn, n_rows=N_SLICES)
    )
    step, optimizer = RobustStep(rules.parse(rule)), torch.optim.Adam(model.parameters(), lr=0.001)
    threat, adversaries = CORRUPTIONS[corruption], Adversaries(bad_fraction=SHARE)
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(seed)  # for dropout
        for _ in range(round(budget / cost)):
            batch = torch.randint(0, len(data), (BATCH,), generator=generator)
            x, y = images[batch], data.labels[batch]
            if threat is not None:
                x, y = corruptions.parse(threat)(
                    x, y, adversaries.draw(BATCH, generator=generator), generator=generator
                )
            optimizer.zero_grad()
            step.backward(source(((x - MEAN) / DEVIATION).to(memory_format=torch.channels_last), y))
            optimizer.step()
    model.eval()
    with torch.no_grad():
        pixels = ((test.scaled() - MEAN) / DEVIATION).to(memory_format=torch.channels_last)
        return 100 * float((model(pixels).argmax(1) == test.labels).double().mean())


def sweep(runs: list[dict[str, Any]], record: Path) -> list[dict[str, Any]]:
    """All runs of the record, after appending those of `runs` that it lacks."""
    record.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    known = [{key: value for key, value in run.items() if key != "accuracy"} for run in done]
    for run in track([run for run in runs if run not in known], description="runs"):
        done.append(run | {"accuracy": round(train(**run), 2)})
        with record.open("a") as file:
            file.write(json.dumps(done[-1]) + "\n")
    return done


def summary(done: list[dict[str, Any]]) -> list[list[str]]:
    """One line per corruption, one cell per way: mean and standard deviation over seeds."""
    lines = [["40 % of the samples", *WAYS]]
    for corruption in CORRUPTIONS:
        cells = []
        for way in WAYS:
            found = [
                run["accuracy"]
                for run in done
                if (run["way"], run["corruption"]) == (way, corruption)
            ]
            spread = f" ± {stdev(found):.1f}" if len(found) > 1 else ""
            cells.append(f"{mean(found):.1f}{spread}" if found else "")
        lines.append([corruption, *cells])
    return lines


def markdown(lines: list[list[str]]) -> list[str]:
    """The table as lines of Markdown."""
    return [f"| {' | '.join(line)} |" for line in [lines[0], ["---"] * len(lines[0]), *lines[1:]]]


def main() -> None:
    """Read the arguments, run, show."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--corruptions",
        nargs="+",
        choices=CORRUPTIONS,
        default=list(CORRUPTIONS),
        metavar="CORRUPTION",
        help=", ".join(CORRUPTIONS),
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", type=int, default=200, help="in plain steps of 128 images")
    record = Path("samples_against_slices.jsonl")
    parser.add_argument("--record", type=Path, default=record, help="file to append runs to")
    parser.add_argument("--page", type=Path, help="file whose table is rewritten")
    given = parser.parse_args()
    runs = [
        {"way": way, "corruption": corruption, "seed": seed, "budget": given.budget}
        for seed in range(given.seeds)
        for corruption in given.corruptions
        for way in WAYS
    ]
    try:
        done = sweep(runs, given.record)
    except KeyboardInterrupt:
        raise SystemExit(f"Stopped; the same command resumes from {given.record}.") from None
    lines = summary([run for run in done if run["budget"] == given.budget])
    table = Table(*lines[0])
    for line in lines[1:]:
        table.add_row(*line)
    Console().print(table)
    if given.page is not None:
        text = given.page.read_text() if given.page.exists() else "# Samples against slices\n\n"
        head = text.split("\n| 40 %")[0].rstrip()
        given.page.write_text("\n".join([head, "", *markdown(lines)]) + "\n")


if __name__ == "__main__":
    main()
