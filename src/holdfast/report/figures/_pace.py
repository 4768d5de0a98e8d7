"""Times of runs that were made at different times, or on different machines."""

from collections.abc import Iterable, Mapping
from statistics import median

from holdfast.records import Summary

SAME_WORK = ("data", "model", "n_rows", "row_size")
"""Fields of a configuration: where they agree, the gradient is the same work."""


def seconds_per_step(runs: Iterable[Summary]) -> Mapping[str, float]:
    """What a step takes each run, by its hash, had all of them been made at one pace.

    The gradient is the same work for every method, so it tells how fast the machine was: each run's times are scaled such that its gradient takes as long as the median
    one of those with the same work.
    """
    runs = list(runs)
    gradients: dict[tuple[str, ...], list[float]] = {}
    for run in runs:
        gradients.setdefault(_work(run), []).append(_gradient(run))
    found = {}
    for run in runs:
        timed = [seconds for seconds in gradients[_work(run)] if seconds > 0]  # without a step there is no time
        pace = median(timed) / _gradient(run) if _gradient(run) > 0 else 1.0
        found[run.hash] = run.seconds_per_step * pace
    return found


def _work(run: Summary) -> tuple[str, ...]:
    return tuple(str(run.config.get(name)) for name in SAME_WORK)


def _gradient(run: Summary) -> float:
    return float(run.content["seconds"].get("gradient", 0.0))
