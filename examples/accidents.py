r"""The radius filter under accidents: five small models, 8 to 32 rows, up to 40 % of them spoiled.

Which rows are spoiled is drawn anew at every step. Four kinds of runs see the same batches, and the
same rows are spoiled in them: an ordinary loop, a rule without faults, a rule with a fault, and the
mean of the rows that are not spoiled ("absent"), the best that can be had. Runs of the record are
skipped, so the sweep can be stopped and started again. From the root of the project:

    python -m examples.accidents --models "MLP, momentum" --rows 8 --seeds 1
    python -m examples.accidents --record docs/results/accidents.jsonl \
        --page docs/results/accidents.md
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, final

import torch
from examples.run_records import Lines, Run, accuracy_cell, chosen, show, sweep
from examples.small_models import Training
from torch import Tensor

from holdfast.aggregators import (
    Aggregator,
    CovarianceFilter,
    GeometricMedian,
    Mean,
    RadiusFilter,
)
from holdfast.errors import NonFiniteMemoryError, NonFiniteRowsError
from holdfast.geometry import DenseRows, least
from holdfast.robust_step import StepResult
from holdfast.seeds import stream
from holdfast.threats import (
    Adversaries,
    Attack,
    AttackContext,
    IeeeBitFlips,
    NoisyRows,
    NonFinite,
    ScaledFlip,
)

MODELS = {
    "MLP, momentum": ("mlp", "momentum", 200, 8),
    "MLP, AdamW": ("mlp", "adamw", 200, 8),
    "BatchNorm CNN, momentum": ("batch-norm-cnn", "momentum", 200, 8),
    "Transformer encoder, AdamW": ("encoder", "adamw", 150, 8),
    "tiny GPT-2, AdamW": ("gpt-2", "adamw", 150, 8),
    "tiny GPT-2, rows of 4": ("gpt-2", "adamw", 150, 4),
}
"""The model, the optimizer, the number of steps, and the samples of a row.

The last one is run without faults only: it shows rows that are smaller than the others.
"""

ROWS, SHARES = (8, 16, 32), (0.25, 0.4)
FILTER, PLAIN, ABSENT = "radius filter", "plain loop", "absent"
RULES: dict[str, Aggregator] = {
    FILTER: RadiusFilter(),
    "geometric median": GeometricMedian(),
    "covariance filter": CovarianceFilter(),
}


@final
@dataclass(frozen=True, kw_only=True)
class Scaled(Attack):
    """The own gradient times a factor, as after a lost division by the number of workers."""

    name = "scaled"
    aim = "Length of the mean."

    factor: float = 50.0

    def _bad_rows(self, context: AttackContext) -> Tensor:
        return context.own * self.factor


FAULTS: dict[str, Attack] = {
    "times -100": ScaledFlip(factor=100.0),
    "times 50": Scaled(factor=50.0),
    "noise": NoisyRows(deviation=10.0),
    "NaN": NonFinite(),
    "bit flips": IeeeBitFlips(),
}
NONE = "none"


class Accidents:
    """Spoils a share of the rows, other ones at each step, and counts what the rule left out."""

    def __init__(self, fault: str, share: float, seed: int) -> None:
        self._fault = FAULTS.get(fault)
        self._adversaries = Adversaries(bad_fraction=share)
        # Streams of their own: runs with other faults draw the same identities.
        self._identities, self._noise = stream(seed, "identities"), stream(seed, "fault")
        self._mask = torch.zeros(0, dtype=torch.bool)
        self._counts = torch.zeros(2, 2, dtype=torch.int64)  # honest and bad, used and left out
        self._ratios: list[float] = []

    def spoiled(self, rows: DenseRows) -> DenseRows:
        """The rows with the fault in those that are bad at this step."""
        self._mask = self._adversaries.draw(rows.n, generator=self._identities)
        if self._fault is None:
            return rows
        return self._fault(rows, self._mask, generator=self._noise)

    def absent(self, rows: DenseRows) -> DenseRows:
        """The rows without those that are bad at this step."""
        mask = self._adversaries.draw(rows.n, generator=self._identities)
        return rows.keep((~mask).nonzero()[:, 0])

    def watch(self, rows: DenseRows, result: StepResult) -> None:
        """Count rejected rows, and measure how far out the honest ones are."""
        for is_bad in (False, True):
            rejected = result.rejected[self._mask == is_bad]
            self._counts[int(is_bad)] += torch.stack([(~rejected).sum(), rejected.sum()])
        self._ratios.append(largest_ratio(rows, ~self._mask))

    def figures(self) -> dict[str, Any]:
        """What goes to the record: counts of rows, the largest ratio and its step."""
        (_, honest_rejected), (bad_missed, _) = self._counts.tolist()
        n_honest, n_bad = self._counts.sum(1).tolist()
        ratio = max(self._ratios)
        return {
            "honest": n_honest,
            "honest_rejected": honest_rejected,
            "bad": n_bad,
            "bad_missed": bad_missed,
            "ratio": round(ratio, 3),
            "ratio_step": self._ratios.index(ratio),
        }


def largest_ratio(rows: DenseRows, honest: Tensor) -> float:
    """The largest distance of an honest row from the vector median, in majority radii.

    The radius filter leaves out the rows whose ratio is above its reach.
    """
    gram = rows.gram()
    # A row is within its own majority, so a majority of n needs n // 2 others.
    radii = gram.distances.sort(1).values[:, gram.n // 2]
    center = least(radii, gram.distances.sum(1))
    return float((gram.distances[center] / radii[center])[honest[gram.kept]].max())


def plan(models: list[str], row_counts: list[int], n_seeds: int) -> list[Run]:
    """The settings of all runs, the first seed of everything first."""
    return [
        {"model": model, "rows": n_rows, "seed": seed}
        | {"way": way, "fault": fault, "share": share, "steps": MODELS[model][2]}
        for seed in range(n_seeds)
        for n_rows in row_counts
        for model in models
        for way, fault, share in kinds(model, n_rows, seed)
    ]


def kinds(model: str, n_rows: int, seed: int) -> list[tuple[str, str, float]]:
    """Way, fault and share of the runs of a model; rules besides the filter at 16 rows only."""
    without = [(PLAIN, NONE, 0.0), (FILTER, NONE, 0.0)]
    if model.endswith("rows of 4"):
        return without
    absent = [(ABSENT, NONE, share) for share in SHARES]
    others = [rule for rule in RULES if rule != FILTER] if (n_rows, seed) == (16, 0) else []
    without += absent + [(rule, NONE, 0.0) for rule in others]
    rules = [FILTER, *others]
    return without + [(rule, fault, s) for rule in rules for fault in FAULTS for s in SHARES]


def measured(run: Run) -> Run:
    """Train as the run says: its accuracy and, for a rule, what became of the rows."""
    model, optimizer, _, row_size = MODELS[run["model"]]
    training = Training(
        model=model,
        optimizer=optimizer,
        seed=run["seed"],
        n_steps=run["steps"],
        n_rows=run["rows"],
        row_size=row_size,
    )
    accidents = Accidents(run["fault"], run["share"], run["seed"])
    if run["way"] == PLAIN:
        return {"accuracy": round(training.plain(), 2)}
    if run["way"] == ABSENT:
        return {"accuracy": round(training.robust(Mean(), sent=accidents.absent), 2)}
    accuracy = None
    try:
        rule = RULES[run["way"]]
        found = training.robust(rule, sent=accidents.spoiled, watch=accidents.watch)
        accuracy = round(found, 2)
    except (NonFiniteRowsError, NonFiniteMemoryError):
        pass  # training diverged
    return {"accuracy": accuracy} | accidents.figures()


def share(runs: list[Run], part: str, whole: str) -> str:
    """How many of all rows, in percent if there are any."""
    n_part, n_whole = (sum(run[key] for run in runs) for key in (part, whole))
    return f"{100 * n_part / n_whole:.3f} % ({n_part} of {n_whole})" if n_part else "0"


def without_faults(done: list[Run]) -> Lines:
    """The radius filter beside the plain loop."""
    head = ["model", "rows", PLAIN, FILTER, "difference", "honest rows rejected", "largest ratio"]
    lines = [head]
    for model in MODELS:
        for n_rows in ROWS:
            same = chosen(done, model=model, rows=n_rows, fault=NONE, share=0.0)
            plain, clean = chosen(same, way=PLAIN), chosen(same, way=FILTER)
            if not plain or len(plain) != len(clean):
                continue
            pairs = zip(clean, plain, strict=True)
            difference = mean(one["accuracy"] - other["accuracy"] for one, other in pairs)
            lines.append(
                [
                    model,
                    str(n_rows),
                    accuracy_cell(plain),
                    accuracy_cell(clean),
                    f"{difference:+.2f}",
                ]
            )
            ratio = max(run["ratio"] for run in clean)
            lines[-1] += [share(clean, "honest_rejected", "honest"), f"{ratio:.1f}"]
    return lines


def with_faults(done: list[Run]) -> Lines:
    """The radius filter under each fault beside the mean of the rows that are not spoiled."""
    lines = [["model", "rows", "bad", ABSENT, *FAULTS, "bad rows missed", "honest rows rejected"]]
    for model in MODELS:
        for n_rows in ROWS:
            for bad in SHARES:
                same = chosen(done, model=model, rows=n_rows, share=bad)
                spoiled = chosen(same, way=FILTER)
                if not spoiled:
                    continue
                cells = [accuracy_cell(chosen(spoiled, fault=fault)) for fault in FAULTS]
                lines.append([model, str(n_rows), f"{100 * bad:.0f} %"])
                lines[-1] += [accuracy_cell(chosen(same, way=ABSENT)), *cells]
                lines[-1].append(share(spoiled, "bad_missed", "bad"))
                lines[-1].append(share(spoiled, "honest_rejected", "honest"))
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
            rejected = share(clean, "honest_rejected", "honest")
            lines.append([model, rule, accuracy_cell(clean), rejected, *cells])
    return lines


TABLES = {
    "Without faults": without_faults,
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
    record = Path("accidents.jsonl")
    parser.add_argument("--record", type=Path, default=record, help="file to append runs to")
    parser.add_argument("--page", type=Path, help="file whose tables are rewritten")
    given = parser.parse_args()
    try:
        done = sweep(plan(given.models, given.rows, given.seeds), given.record, measured)
    except KeyboardInterrupt:
        raise SystemExit(f"Stopped; the same command resumes from {given.record}.") from None
    show({title: make(done) for title, make in TABLES.items()}, given.page)


if __name__ == "__main__":
    main()
