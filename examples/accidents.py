r"""The radius filter under accidents: five small models, 8 to 32 rows, up to 40 % of them spoiled.

Which rows are spoiled is drawn anew at every step. All ways see the same batches, and the same rows
are spoiled in them: an ordinary loop, the mean of the rows, a rule without faults, a rule with a
fault, and the mean of the rows that are not spoiled ("absent"), the best that can be had. Runs of
the record are skipped, so the sweep can be stopped and started again. From the project's root:

    python -m examples.accidents --models "MLP, momentum" --rows 8 --seeds 1
    python -m examples.accidents --record docs/results/accidents.jsonl \
        --page docs/results/accidents.md
"""

import argparse
from collections import Counter
from pathlib import Path
from statistics import mean

from examples.faults import FAULTS, NONE, Accidents
from examples.run_records import Lines, Run, accuracy_cell, chosen, show, sweep
from examples.small_models import Training

from holdfast.aggregators import (
    Aggregator,
    CovarianceFilter,
    GeometricMedian,
    Mean,
    RadiusFilter,
)
from holdfast.errors import NonFiniteMemoryError, NonFiniteRowsError

MODELS = {
    "MLP, momentum": ("mlp", "momentum", 200),
    "MLP, AdamW": ("mlp", "adamw", 200),
    "BatchNorm CNN, momentum": ("batch-norm-cnn", "momentum", 200),
    "Transformer encoder, AdamW": ("encoder", "adamw", 150),
    "tiny GPT-2, AdamW": ("gpt-2", "adamw", 150),
}
"""The model, the optimizer and the number of steps."""

ROWS, SHARES = (8, 16, 32), (0.25, 0.4)
ROW_SIZE, OTHER_SIZES = 8, (4, 16, 32)  # samples of a row; the others at 8 rows, without faults
FILTER, PLAIN, MEAN, ABSENT = "radius filter", "plain loop", "mean of rows", "absent"
RULES: dict[str, Aggregator] = {
    FILTER: RadiusFilter(),
    "geometric median": GeometricMedian(),
    "covariance filter": CovarianceFilter(),
}


def plan(
    models: list[str], row_counts: list[int], n_seeds: int, n_steps: int | None = None
) -> list[Run]:
    """The settings of all runs, the first seed of everything first."""
    return [
        {"model": model, "rows": n_rows, "row_size": row_size, "seed": seed}
        | {"way": way, "fault": fault, "share": share, "steps": n_steps or MODELS[model][2]}
        for seed in range(n_seeds)
        for n_rows in row_counts
        for model in models
        for row_size, way, fault, share in kinds(n_rows, seed)
    ]


def kinds(n_rows: int, seed: int) -> list[tuple[int, str, str, float]]:
    """Row size, way, fault and share of the runs of a model with this number of rows."""
    others = [rule for rule in RULES if rule != FILTER] if (n_rows, seed) == (16, 0) else []
    rules = [FILTER, *others]
    found = [(PLAIN, NONE, 0.0), (MEAN, NONE, 0.0)]
    found += [(ABSENT, NONE, share) for share in SHARES]
    found += [(rule, NONE, 0.0) for rule in rules]
    found += [(rule, fault, share) for rule in rules for fault in FAULTS for share in SHARES]
    sizes = OTHER_SIZES if n_rows == 8 else ()
    return [(ROW_SIZE, *kind) for kind in found] + [(size, FILTER, NONE, 0.0) for size in sizes]


def measured(run: Run) -> Run:
    """Train as the run says: its accuracy and, for a rule, what became of the rows."""
    model, optimizer, _ = MODELS[run["model"]]
    training = Training(
        model=model,
        optimizer=optimizer,
        seed=run["seed"],
        n_steps=run["steps"],
        n_rows=run["rows"],
        row_size=run["row_size"],
    )
    accidents = Accidents(run["fault"], run["share"], run["seed"])
    if run["way"] == PLAIN:
        return {"accuracy": round(training.plain(), 2)}
    if run["way"] in (MEAN, ABSENT):  # a share of zero leaves all rows
        return {"accuracy": round(training.robust(Mean(), sent=accidents.absent), 2)}
    accuracy = None
    try:
        rule = RULES[run["way"]]
        found = training.robust(rule, sent=accidents.spoiled, watch=accidents.watch)
        accuracy = round(found, 2)
    except (NonFiniteRowsError, NonFiniteMemoryError):
        pass  # training diverged
    return {"accuracy": accuracy} | accidents.figures()


def count_cell(runs: list[Run], part: str, whole: str) -> str:
    """How many of all rows, in percent if there are any."""
    n_part, n_whole = (sum(run[key] for run in runs) for key in (part, whole))
    return f"{100 * n_part / n_whole:.3f} % ({n_part} of {n_whole})" if n_part else "0"


def complete(runs: list[Run], n: int) -> list[Run]:
    """The runs of the seeds that have n of them, so that all cells of a line share their seeds."""
    counts = Counter(run["seed"] for run in runs)
    return [run for run in runs if counts[run["seed"]] == n]


def without_faults(done: list[Run]) -> Lines:
    """The radius filter beside the plain loop."""
    ways = [PLAIN, MEAN, FILTER]
    lines = [["model", "rows", "seeds", *ways, "filter - plain"]]
    lines[0] += ["honest rows rejected", "largest ratio"]
    for model in MODELS:
        for n_rows in ROWS:
            same = chosen(done, model=model, rows=n_rows, row_size=ROW_SIZE, share=0.0)
            same = complete([run for run in same if run["way"] in ways], len(ways))
            if not same:
                continue
            plain, clean = chosen(same, way=PLAIN), chosen(same, way=FILTER)
            pairs = zip(clean, plain, strict=True)
            difference = mean(one["accuracy"] - other["accuracy"] for one, other in pairs)
            lines.append([model, str(n_rows), str(len(clean))])
            lines[-1] += [accuracy_cell(chosen(same, way=way)) for way in ways]
            lines[-1] += [f"{difference:+.2f}", count_cell(clean, "honest_rejected", "honest")]
            lines[-1].append(f"{max(run['ratio'] for run in clean):.1f}")
    return lines


def with_faults(done: list[Run]) -> Lines:
    """The radius filter under each fault beside the mean of the rows that are not spoiled."""
    lines = [["model", "rows", "bad", "seeds", ABSENT, *FAULTS]]
    lines[0] += ["bad rows missed", "honest rows rejected"]
    for model in MODELS:
        for n_rows in ROWS:
            for bad in SHARES:
                same = chosen(done, model=model, rows=n_rows, share=bad)
                ways = [run for run in same if run["way"] in (ABSENT, FILTER)]
                same = complete(ways, 1 + len(FAULTS))
                if not same:
                    continue
                absent, spoiled = chosen(same, way=ABSENT), chosen(same, way=FILTER)
                lines.append([model, str(n_rows), f"{100 * bad:.0f} %", str(len(absent))])
                lines[-1].append(accuracy_cell(absent))
                lines[-1] += [accuracy_cell(chosen(spoiled, fault=fault)) for fault in FAULTS]
                lines[-1].append(count_cell(spoiled, "bad_missed", "bad"))
                lines[-1].append(count_cell(spoiled, "honest_rejected", "honest"))
    return lines


def other_rules(done: list[Run]) -> Lines:
    """All rules at 16 rows and the first seed; a cell is for 25 % and for 40 % of bad rows."""
    lines = [["model", "way", NONE, "honest rows rejected", *FAULTS]]
    for model in MODELS:
        same = chosen(done, model=model, rows=16, seed=0)
        absent = chosen(same, way=ABSENT)
        if not chosen(same, way=list(RULES)[-1]):
            continue
        best = " / ".join(accuracy_cell(chosen(absent, share=bad)) for bad in SHARES)
        lines.append(
            [model, ABSENT, accuracy_cell(chosen(same, way=PLAIN)), "", *[best] * len(FAULTS)]
        )
        for rule in RULES:
            own = chosen(same, way=rule)
            clean = chosen(own, fault=NONE)
            cells = [
                " / ".join(accuracy_cell(chosen(own, fault=fault, share=bad)) for bad in SHARES)
                for fault in FAULTS
            ]
            rejected = count_cell(clean, "honest_rejected", "honest")
            lines.append([model, rule, accuracy_cell(clean), rejected, *cells])
    return lines


def row_sizes(done: list[Run]) -> Lines:
    """Honest rows rejected without faults, by the number of samples of a row; 8 rows."""
    sizes = sorted([ROW_SIZE, *OTHER_SIZES])
    lines = [["model", "seeds", *(f"{size} samples" for size in sizes)]]
    lines[0] += [f"ratio, {size}" for size in sizes]
    for model in MODELS:
        same = chosen(done, model=model, rows=8, way=FILTER, fault=NONE)
        same = complete(same, len(sizes))
        found = [chosen(same, row_size=size) for size in sizes]
        if same:
            shares = [count_cell(runs, "honest_rejected", "honest") for runs in found]
            ratios = [f"{max(run['ratio'] for run in runs):.1f}" for runs in found]
            lines.append([model, str(len(found[0])), *shares, *ratios])
    return lines


TABLES = {
    "Without faults": without_faults,
    "Without faults, 8 rows of other sizes": row_sizes,
    "With faults": with_faults,
    "Other rules, 16 rows, one seed": other_rules,
}


def main() -> None:
    """Read the arguments, run, show."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = list(MODELS)
    parser.add_argument("--models", nargs="+", choices=names, default=names, metavar="MODEL")
    parser.add_argument("--rows", nargs="+", type=int, choices=ROWS, default=list(ROWS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="instead of 200 or 150")
    record = Path("accidents.jsonl")
    parser.add_argument("--record", type=Path, default=record, help="file to append runs to")
    parser.add_argument("--page", type=Path, help="file whose tables are rewritten")
    given = parser.parse_args()
    try:
        done = sweep(
            plan(given.models, given.rows, given.seeds, given.steps), given.record, measured
        )
    except KeyboardInterrupt:
        raise SystemExit(f"Stopped; the same command resumes from {given.record}.") from None
    done = [run for run in done if run["steps"] == (given.steps or MODELS[run["model"]][2])]
    show({title: make(done) for title, make in TABLES.items()}, given.page)


if __name__ == "__main__":
    main()
