import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import typer

from holdfast.lab.cli._summary import Lines, duration, outcome, plan, progress_words
from holdfast.lab.cli.screens._screen import Screen
from holdfast.lab.config import Config
from holdfast.lab.data import Progress
from holdfast.lab.records import Record

PAUSE = 10.0
"""Seconds between lines at least, evaluations apart."""


@final
class PlainScreen(Screen):
    """Lines of text without control characters, for files and pipes: one at each evaluation, and one every few seconds."""

    def __init__(self) -> None:
        self._config = Config()
        self._files: set[str] = set()
        self._started = self._shown = time.monotonic()
        self._n_made = 0

    def close(self) -> None:
        return

    def fetching(self, progress: Progress) -> None:
        if progress.file not in self._files:
            self._files.add(progress.file)
            typer.echo(f"Fetching {progress.file} from {progress.source}")

    def begin(self, config: Config, folder: Path) -> None:
        self._config, self._n_made = config, 0
        _echo(plan(config, folder))
        self._started = self._shown = time.monotonic()

    def entry(self, entry: Mapping[str, Any]) -> None:
        if self._n_made == 0 and entry["step"] > 1:
            typer.echo(f"Going on after step {entry['step'] - 1}.")
        now = time.monotonic()
        if self._n_made == 0:
            self._started = now  # the rate counts from the second step on: the first has to warm up
        self._n_made += 1
        if "accuracy" not in entry and now - self._shown < PAUSE:
            return
        self._shown = now
        words = [
            f"step {entry['step']}/{self._config.n_steps}",
            *progress_words(dict(entry), self._config.n_rows),
        ]
        if self._n_made > 1:
            rate = (self._n_made - 1) / max(now - self._started, 1e-9)
            words += [
                f"{rate:.1f} steps/s",
                f"{duration((self._config.n_steps - entry['step']) / rate)} left",
            ]
        typer.echo(", ".join(words))

    def end(self, record: Record, go_on: str) -> None:
        _echo(outcome(record, go_on))


def _echo(lines: Lines) -> None:
    for label, text in lines:
        typer.echo(f"{label}: {text}")
