from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from holdfast.lab.cli._summary import Lines, outcome, plan, progress_words
from holdfast.lab.cli.screens._screen import Screen
from holdfast.lab.config import Config
from holdfast.lab.data import Progress as FetchProgress
from holdfast.lab.records import Record


@final
class LiveScreen(Screen):
    """A bar with rate, loss, accuracy, rejected rows and the time left, for terminals."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._config = Config()
        self._latest: dict[str, Any] = {}
        self._bars: Progress | None = None
        self._task = TaskID(0)
        self._files: dict[str, TaskID] = {}

    def close(self) -> None:
        """Stop drawing."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def fetching(self, progress: FetchProgress) -> None:
        if self._bars is None:
            self._draw(
                Progress(
                    TextColumn("Fetching {task.description}", markup=False),
                    BarColumn(),
                    DownloadColumn(),
                    TimeRemainingColumn(),
                    console=self._console,
                )
            )
            self._files.clear()
        assert self._bars is not None
        if progress.file not in self._files:
            self._files[progress.file] = self._bars.add_task(
                f"{progress.file} from {progress.source}", total=progress.total
            )
        self._bars.update(self._files[progress.file], completed=progress.done, total=progress.total)

    def begin(self, config: Config, folder: Path) -> None:
        self.close()
        self._config, self._latest = config, {}
        _show(self._console, plan(config, folder))
        columns = (
            SpinnerColumn(),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[words]}", markup=False),
            TextColumn("{task.fields[rate]}", markup=False),
            TimeRemainingColumn(compact=True),
        )
        self._draw(Progress(*columns, console=self._console, transient=True))
        assert self._bars is not None
        self._task = self._bars.add_task("steps", total=config.n_steps, words="", rate="")

    def entry(self, entry: Mapping[str, Any]) -> None:
        assert self._bars is not None
        if not self._latest:  # the rate counts from here, wherever the run goes on from
            self._bars.reset(self._task, completed=entry["step"] - 1)
        self._latest.update(entry)  # the accuracy of the last evaluation stays in sight
        words = "  ".join(progress_words(self._latest, self._config.n_rows))
        speed = self._bars.tasks[self._task].speed
        rate = "" if speed is None else f"{speed:.1f} steps/s"
        self._bars.update(self._task, completed=entry["step"], words=words, rate=rate)

    def end(self, record: Record, go_on: str) -> None:
        self.close()
        _show(self._console, outcome(record, go_on))

    def _draw(self, bars: Progress) -> None:
        self.close()
        self._bars = bars
        bars.start()


def _show(console: Console, lines: Lines) -> None:
    """Lines that the terminal breaks by itself, so that a long command can be copied."""
    width = max(len(label) for label, _ in lines)
    for label, text in lines:
        console.print(Text.assemble((label.ljust(width), "cyan"), "  ", text), soft_wrap=True)
