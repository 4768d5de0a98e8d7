"""Progress as lines of text or JSON."""

import json
import time
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, final

import typer

from holdfast.lab.cli._progress import SweepProgress
from holdfast.lab.cli._summary import duration, plan, progress_words, result_of
from holdfast.lab.data import Progress
from holdfast.lab.records import Record
from holdfast.lab.sweep import PlannedRun, SweepObserver

PAUSE = 10.0
"""Least time in seconds between two lines about steps without an evaluation."""


class Form(Enum):
    """What lines tell."""

    RUNS = "a line per run that ends"
    STEPS = "the plan and the steps of a single run"
    JSON = "every entry of the record as JSON"
    QUIET = "nothing but failures"


@final
class Lines(SweepObserver):
    """Prints lines without control characters, for pipes and files."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._is_quiet = form in (Form.JSON, Form.QUIET)
        self._progress = SweepProgress()
        self._files: set[str] = set()
        self._begun: dict[PlannedRun, float] = {}
        self._n_known = 0
        self._has_stepped = False
        self._printed = 0.0

    def close(self) -> None:
        """Do nothing; unlike a board, lines leave nothing to restore."""

    def fetching(self, progress: Progress) -> None:
        """Show a download, a part of which arrived."""
        if progress.file not in self._files:
            self._files.add(progress.file)
            self._print(f"Fetching {progress.file} from {progress.source}")

    def measured(self, name: str, *, is_new: bool) -> None:
        """Show a measurement that was taken, now or before."""
        self._print(f"measured {name}" if is_new else f"known already: {name}")

    def planned(self, runs: Sequence[PlannedRun]) -> None:
        self._progress.plan(runs)

    def known(self, run: PlannedRun) -> None:
        self._progress.end(run)
        self._n_known += 1

    def began(self, run: PlannedRun) -> None:
        self._begun[run] = self._printed = time.monotonic()
        if self._form is Form.STEPS:
            for label, text in plan(run.config, run.folder):
                typer.echo(f"{label}: {text}")
        elif self._n_known:
            n = f"{self._n_known} of {self._progress.n_runs}"
            self._print(f"{n} runs have ended before and are not repeated")
            self._n_known = 0

    def stepped(self, run: PlannedRun, entry: Mapping[str, Any]) -> None:
        self._progress.step(run, entry["step"])
        if self._form is Form.JSON:
            typer.echo(json.dumps(entry))
        if self._form is not Form.STEPS:
            return
        if not self._has_stepped and entry["step"] > 1:
            typer.echo(f"Resuming after step {entry['step'] - 1:,}.")
        self._has_stepped = True
        if "accuracy" in entry or time.monotonic() - self._printed >= PAUSE:
            self._printed = time.monotonic()
            step = f"step {entry['step']:,}/{run.config.n_steps:,}"
            words = [step, *progress_words(entry, run.config.n_rows), *self._rate()]
            typer.echo(", ".join(words))

    def ended(self, run: PlannedRun, record: Record) -> None:
        if self._form is not Form.RUNS:
            return
        if record.end is None:
            typer.echo(f"{run.folder.name}: {result_of(record)}")
            return
        self._progress.end(run)
        took = duration(time.monotonic() - self._begun[run])
        left = self._progress.seconds_left
        took += "" if left is None else f"; {duration(left)} left"
        typer.echo(f"{self._count()} {run.folder.name}: {result_of(record)} ({took})")

    def failed(self, run: PlannedRun, reason: str) -> None:
        self._progress.end(run)
        if self._form is Form.RUNS:  # of a single run, the command itself reports the error
            typer.echo(f"{self._count()} {run.folder.name} failed: {reason}", err=True)

    def _count(self) -> str:
        return f"[{self._progress.n_done}/{self._progress.n_runs}]"

    def _rate(self) -> list[str]:
        rate, left = self._progress.rate, self._progress.seconds_left
        if rate is None or left is None:
            return []
        return [f"{rate:.1f} steps/s", f"{duration(left)} left"]

    def _print(self, text: str) -> None:
        if not self._is_quiet:
            typer.echo(text)
