r"""Rows of single samples against rows of slices: LeNet on batches with 40 % corrupted images.

All ways get the same budget, in plain steps of the same batch: the number of steps is the budget
divided by the cost of one step (docs/benchmarks/training.md). Runs of the record are skipped, so
the sweep can be stopped and started again. From the project's root:

    python -m examples.samples_against_slices --seeds 1 --corruptions noise
    python -m examples.samples_against_slices --record docs/results/samples_against_slices.jsonl \
        --page docs/results/samples_against_slices.md
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from examples.run_records import Lines, Run, chosen, show_table, spread_cell, sweep
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


def measured(run: Run) -> Run:
    """The accuracy that a run reaches."""
    return {"accuracy": round(train(**run), 2)}


def summary(done: list[Run]) -> Lines:
    """One line per corruption, one cell per way: mean and standard deviation over seeds."""
    lines = [["40 % of the samples", *WAYS]]
    for corruption in CORRUPTIONS:
        same = chosen(done, corruption=corruption)
        lines.append([corruption, *(spread_cell(chosen(same, way=way)) for way in WAYS)])
    return lines


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
        done = sweep(runs, given.record, measured)
    except KeyboardInterrupt:
        raise SystemExit(f"Stopped; the same command resumes from {given.record}.") from None
    show_table(summary(chosen(done, budget=given.budget)), given.page)


if __name__ == "__main__":
    main()
