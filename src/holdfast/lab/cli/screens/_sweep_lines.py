import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import typer

from holdfast.lab.cli._summary import duration, percent
from holdfast.lab.cli.screens._sweep_progress import SweepProgress
from holdfast.lab.config import Config, run_name
from holdfast.lab.paper.measurements import Measurement
from holdfast.lab.records import Record
from holdfast.lab.sweep import SweepObserver


@final
class SweepLines(SweepObserver):
    """A line for every run that ends, for files and pipes.

    Args:
        quiet: whether to tell of failures alone.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._progress = SweepProgress()
        self._begun: dict[int, float] = {}
        self._n_known = 0

    def planned(self, n_measurements: int, configs: list[Config]) -> None:
        self._progress.plan(configs)

    def measured(self, measurement: Measurement, *, is_new: bool) -> None:
        self._say(
            f"measured {measurement.name}" if is_new else f"known already: {measurement.name}"
        )

    def not_measured(self, measurement: Measurement, reason: str) -> None:
        typer.echo(f"{measurement.name} failed: {reason}", err=True)

    def known(self, config: Config) -> None:
        self._progress.end(None, config)
        self._n_known += 1

    def began(self, worker: int, config: Config, folder: Path) -> None:
        if self._n_known:
            self._say(
                f"{self._n_known} of {self._progress.n_runs} runs have ended before and are not made again"
            )
            self._n_known = 0
        self._begun[worker] = time.monotonic()

    def stepped(self, worker: int, entry: Mapping[str, Any]) -> None:
        self._progress.step(worker, entry["step"])

    def ended(self, worker: int, config: Config, record: Record) -> None:
        if record.end is None:
            self._say(f"{record.folder.name}: {result_of(record)}")
            return
        self._progress.end(worker, config)
        self._say(
            f"{self._place()} {record.folder.name}: {result_of(record)} ({self._time(worker)})"
        )

    def failed(self, worker: int, config: Config, reason: str) -> None:
        self._progress.end(worker, config)
        typer.echo(f"{self._place()} {run_name(config)} failed: {reason}", err=True)

    def _place(self) -> str:
        return f"[{self._progress.n_done}/{self._progress.n_runs}]"

    def _time(self, worker: int) -> str:
        left = self._progress.seconds_left()
        took = duration(time.monotonic() - self._begun[worker])
        return took if left is None else f"{took}; {duration(left)} left"

    def _say(self, text: str) -> None:
        if not self._quiet:
            typer.echo(text)


def result_of(record: Record) -> str:
    """What came of a run, in a few words."""
    if record.end is None:
        return f"stopped after step {record.n_steps}"
    if record.end["end"] == "diverged":
        return f"diverged after step {record.end['step']}"
    return percent(record.accuracy)
