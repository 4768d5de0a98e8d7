r"""BGMD beside the exact geometric median at equal steps, without an attack, on small models.

The same batches for both, and for the mean of the rows. BGMD moves a tenth of the coordinates at
each step: of what the optimizer made of the whole aggregate. Runs of the record are skipped, so the
sweep can be stopped and started again. From the project's root:

    python -m examples.bgmd_against_median --cases "MLP, SGD" --seeds 1
    python -m examples.bgmd_against_median --record docs/results/bgmd_against_median.jsonl \
        --page docs/results/bgmd_against_median.md
"""

import argparse
from pathlib import Path
from statistics import mean, stdev

from examples.run_records import Lines, Run, accuracy_cell, chosen, show, sweep
from examples.small_models import Training

from holdfast import RobustStep, bgmd
from holdfast.seeds import stream

CASES = {
    "LeNet, momentum, 60 steps": ("lenet", "momentum", 60),
    "LeNet, momentum, 300 steps": ("lenet", "momentum", 300),
    "MLP, SGD, 200 steps": ("mlp", "sgd", 200),
    "MLP, momentum, 200 steps": ("mlp", "momentum", 200),
    "MLP, Adam, 200 steps": ("mlp", "adam", 200),
    "BatchNorm CNN, momentum, 100 steps": ("batch-norm-cnn", "momentum", 100),
    "Transformer encoder, AdamW, 150 steps": ("encoder", "adamw", 150),
    "tiny GPT-2, AdamW, 150 steps": ("gpt-2", "adamw", 150),
}
"""The model, the optimizer and the number of steps."""

MEDIAN, BGMD = "geometric median", "bgmd"
WAYS = ("mean", MEDIAN, BGMD)
N_ROWS = 16


def measured(run: Run) -> Run:
    """Train as the run says: its accuracy."""
    model, optimizer, n_steps = CASES[run["case"]]
    training = Training(
        model=model,
        optimizer=optimizer,
        seed=run["seed"],
        n_steps=run["steps"] or n_steps,
        n_rows=N_ROWS,
    )
    steps = {
        "mean": RobustStep("mean"),
        MEDIAN: RobustStep("geometric-median"),
        BGMD: bgmd(fraction=0.1, generator=stream(run["seed"], "blocks")),
    }
    return {"accuracy": round(training.robust(steps[run["way"]]), 2)}


def summary(done: list[Run]) -> Lines:
    """One line per case: accuracies, and the difference of BGMD and the median, seed by seed."""
    lines = [["model", "seeds", *WAYS, "bgmd - median", "standard error"]]
    for case in CASES:
        same = chosen(done, case=case)
        pairs = [
            (one["accuracy"], other["accuracy"])
            for one in chosen(same, way=BGMD)
            for other in chosen(same, way=MEDIAN, seed=one["seed"])
        ]
        if not pairs:
            continue
        differences = [one - other for one, other in pairs]
        error = stdev(differences) / len(pairs) ** 0.5 if len(pairs) > 1 else float("nan")
        cells = [accuracy_cell(chosen(same, way=way)) for way in WAYS]
        lines.append([case, str(len(pairs)), *cells, f"{mean(differences):+.2f}", f"{error:.2f}"])
    return lines


def tables(done: list[Run]) -> dict[str, Lines]:
    """The tables of the page."""
    return {"Accuracy in percent at equal steps": summary(done)}


def main() -> None:
    """Read the arguments, run, show."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=0, help="instead of those of the case")
    record = Path("bgmd_against_median.jsonl")
    parser.add_argument("--record", type=Path, default=record, help="file to append runs to")
    parser.add_argument("--page", type=Path, help="file whose table is rewritten")
    given = parser.parse_args()
    runs = [
        {"case": case, "seed": seed, "way": way, "steps": given.steps}
        for seed in range(given.seeds)
        for case in given.cases
        for way in WAYS
    ]
    done = sweep(runs, given.record, measured)
    show(tables(chosen(done, steps=given.steps)), given.page)


if __name__ == "__main__":
    main()
