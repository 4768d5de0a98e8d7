from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from holdfast.lab.cli._comparison import Comparison
from holdfast.lab.cli._summary import progress_words
from holdfast.lab.cli.screens._screen import Screen
from holdfast.lab.config import Config, format_rule, format_threat
from holdfast.lab.data import Progress as FetchProgress
from holdfast.lab.records import Record


@final
class BoardScreen(Screen):
    """The table of a comparison as it fills, over a bar for the run in hand and one for all of them, for terminals.

    Args:
        console: the terminal.
        comparison: what is shown; whoever makes the runs adds to it.
        n_steps: of all runs together.
    """

    def __init__(self, console: Console, comparison: Comparison, n_steps: int) -> None:
        self._comparison = comparison
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[words]}", markup=False),
            TimeRemainingColumn(compact=True),
        )
        self._all = self._bars.add_task("all runs", total=n_steps, words="")
        self._one = self._bars.add_task("", total=1, words="", visible=False)
        self._before = self._step = 0
        self._config = Config()
        self._latest: dict[str, Any] = {}
        self._live = Live(
            console=console, get_renderable=self._render, refresh_per_second=4, transient=True
        )
        self._live.start()

    def close(self) -> None:
        """Stop drawing; the table is printed by whoever asked for it."""
        self._live.stop()

    def fetching(self, progress: FetchProgress) -> None:
        self._bars.update(
            self._one,
            visible=True,
            description=f"fetching {progress.file}",
            total=progress.total,
            completed=progress.done,
        )

    def begin(self, config: Config, folder: Path) -> None:
        self._config, self._latest, self._step = config, {}, 0
        name = format_rule(config.aggregator, config.selector, config.memory)
        self._bars.reset(
            self._one,
            total=config.n_steps,
            visible=True,
            words="",
            description=f"{name}, {format_threat(config.threat)}",
        )

    def entry(self, entry: Mapping[str, Any]) -> None:
        self._latest.update(entry)
        self._step = entry["step"]
        words = "  ".join(progress_words(self._latest, self._config.n_rows))
        self._bars.update(self._one, completed=self._step, words=words)
        self._bars.update(self._all, completed=self._before + self._step)

    def end(self, record: Record, go_on: str) -> None:
        self._before += int(
            record.config["n_steps"]
        )  # also of a run that diverged early: its steps will never come
        self._bars.update(self._all, completed=self._before)

    def _render(self) -> Group:
        return Group(self._comparison.show(), self._bars)
