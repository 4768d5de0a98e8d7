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
import json
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, final

import torch
from examples.small_models import Training
from rich.console import Console
from rich.progress import track
from rich.table import Table
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
    "MLP, momentum": {"model": "mlp", "optimizer": "momentum", "n_steps": 200, "row_size": 8},
    "MLP, AdamW": {"model": "mlp", "optimizer": "adamw", "n_steps": 200, "row_size": 8},
    "BatchNorm CNN, momentum": {
        "model": "batch-norm-cnn",
        "optimizer": "momentum",
        "n_steps": 200,
        "row_size": 8,
    },
    "Transformer encoder, AdamW": {
        "model": "encoder",
        "optimizer": "adamw",
        "n_steps": 150,
        "row_size": 8,
    },
    "tiny GPT-2, AdamW": {"model": "gpt-2", "optimizer": "adamw", "n_steps": 150, "row_size": 4},
}
"""The arguments of `Training` for each line of the tables."""

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
    "× −100": ScaledFlip(factor=100.0),
    "× 50": Scaled(factor=50.0),
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


Run = dict[str, Any]


def plan(models: list[str], row_counts: list[int], n_seeds: int) -> list[Run]:
    """The settings of all runs, the first seed of everything first."""
    runs = []
    for seed in range(n_seeds):
        for n_rows in row_counts:
            rules = list(RULES) if n_rows == 16 and seed == 0 else [FILTER]
            kinds = [(PLAIN, NONE, 0.0)]
            kinds += [(ABSENT, NONE, share) for share in SHARES]
            kinds += [(rule, NONE, 0.0) for rule in rules]
            kinds += [(rule, f, share) for rule in rules for f in FAULTS for share in SHARES]
            runs += [
                {"model": model, "rows": n_rows, "seed": seed}
                | {"way": way, "fault": fault, "share": share}
                | {"steps": MODELS[model]["n_steps"], "row_size": MODELS[model]["row_size"]}
                for model in models
                for way, fault, share in kinds
            ]
    return runs


def measured(run: Run) -> Run:
    """Train as the run says: its accuracy and, for a rule, what became of the rows."""
    settings: Any = MODELS[run["model"]] | {"n_steps": run["steps"], "row_size": run["row_size"]}
    training = Training(**settings, n_rows=run["rows"], seed=run["seed"])
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


def sweep(runs: list[Run], record: Path) -> list[Run]:
    """All runs of the record, after appending those of `runs` that it lacks."""
    record.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    known = [{key: run[key] for key in runs[0]} for run in done] if runs else []
    for run in track([run for run in runs if run not in known], description="runs"):
        done.append(run | measured(run))
        with record.open("a") as file:
            file.write(json.dumps(done[-1], ensure_ascii=False) + "\n")
    return done
