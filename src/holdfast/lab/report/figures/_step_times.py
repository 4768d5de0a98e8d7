"""What steps take, of runs that were made at different times."""

from collections.abc import Iterable, Mapping
from statistics import median

from holdfast.lab.records import Summary

GRADIENT = "gradient"
SAME_WORK = ("data", "model", "n_rows", "row_size")
"""Fields of a configuration: where they agree, the gradient is the same work."""

REMARK = "The gradient is the same work for all methods, so all of them are shown with its median; the machine was not always equally fast."


def step_times(runs: Iterable[Summary]) -> Mapping[str, Mapping[str, float]]:
    """Seconds of each part of a step, for each run by its hash; the gradient's are the median over all runs with the same work, on the same kind of device."""
    runs = list(runs)
    gradients: dict[tuple[str, ...], list[float]] = {}
    for run in runs:
        if GRADIENT in run.content["seconds"]:  # a run without a step has no times
            gradients.setdefault(_work(run), []).append(run.content["seconds"][GRADIENT])
    usual = {work: median(seconds) for work, seconds in gradients.items()}
    return {
        run.hash: {
            part: usual[_work(run)] if part == GRADIENT else float(seconds)
            for part, seconds in run.content["seconds"].items()
        }
        for run in runs
    }


def _work(run: Summary) -> tuple[str, ...]:
    machine = run.content.get("machine")
    where = machine if isinstance(machine, Mapping) else {}
    return (
        *(str(run.config.get(name)) for name in SAME_WORK),
        *(str(where.get(name)) for name in ("device", "threads")),
    )
