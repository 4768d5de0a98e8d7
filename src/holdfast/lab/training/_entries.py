"""Entries of the record."""

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from holdfast.aggregators import Aggregate
from holdfast.geometry import Rows
from holdfast.lab.training._experiment import Experiment
from holdfast.monitor import Monitor, Suspect
from holdfast.robust_step import StepResult


def log_entry(
    experiment: Experiment, step: int, loss: float, bad_rows: Tensor, result: StepResult
) -> dict[str, Any]:
    """The record's entry of a step; diagnostics that are not finite are None."""
    entry: dict[str, Any] = {
        "step": step,
        "loss": loss,
        "lr": experiment.lr,
        "n_rejected": int(result.rejected.sum()),
        "residual": finite(result.residual),
        "memory_norm": finite(result.carried_norm),
        "gap": finite(result.aggregate.gap),
        "outcome": result.aggregate.outcome.value,
    }
    hits_rows, weights = experiment.config.threat.hits_rows, mean_weights(result.aggregate)
    if weights is not None and hits_rows:
        sizes = weights.abs()
        total = float(sizes.sum())  # zero if the rule rejects every row
        entry["bad_weight"] = finite(float(sizes[bad_rows].sum()) / total if total else 0.0)
    if step % experiment.config.rows_every == 0:
        entry["rejected"] = result.rejected.nonzero().flatten().tolist()
        if weights is not None:
            rounded = (float(f"{weight:.6g}") for weight in weights.tolist())
            entry["weights"] = list(map(finite, rounded))
        if hits_rows:
            entry["bad"] = bad_rows.nonzero().flatten().tolist()
    return entry


def mean_weights(aggregate: Aggregate) -> Tensor | None:
    """[n] the weights of the rows, for a rule that has some in each tile their means over tiles."""
    if aggregate.weights is not None or aggregate.tile_weights is None:
        return aggregate.weights
    return aggregate.tile_weights.mean(0)


def rank_seconds(experiment: Experiment) -> dict[str, list[float]]:
    """The time that each rank took for its row, without the time it waited for the others."""
    seconds = getattr(experiment.source, "seconds", None)
    return {} if seconds is None else {"rank_seconds": seconds}


def suspicion(result: StepResult, monitor: Monitor, rows: Rows) -> dict[str, Any]:
    """Show the step to the monitor; the rows that are suspect now, if any are or were before."""
    before = monitor.suspects()
    gram = result.aggregate.gram or rows.gram()
    monitor.observe(gram.for_all(rows.n), result.rejected)
    return named_suspects(monitor, before)


def named_suspects(monitor: Monitor, before: Sequence[Suspect]) -> dict[str, Any]:
    """The rows that are suspect now, if any are, or were `before` this step."""
    suspects = sorted(suspect.row for suspect in monitor.suspects())
    return {"suspects": suspects} if suspects or before else {}


def finite(value: float | None) -> float | None:
    """The value, or None if it is not finite, which JSON cannot express."""
    return value if value is not None and math.isfinite(value) else None
