"""Progress on a terminal."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, final

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from holdfast.lab.cli._progress import SweepProgress
from holdfast.lab.cli._summary import Lines, duration, percent, plan, progress_words, result_of
from holdfast.lab.data import Progress
from holdfast.lab.records import Record
from holdfast.lab.sweep import PlannedRun, SweepObserver

N_SHOWN = 8
"""Number of ended runs that stay on the board."""

BAR_WIDTH = 24


@final
class Board(SweepObserver):
    """A live board: a line per download and per active run, the last results and the time left.

    Args:
        console: the terminal.
        title: of a board for many runs; without it, the board is for one run and shows its plan.
    """

    def __init__(self, console: Console, title: str | None = None) -> None:
        self._console = console
        self._title = title
        self._progress = SweepProgress()
        self._downloads: dict[str, Progress] = {}
        self._active: dict[PlannedRun, dict[str, Any]] = {}
        self._common = ""  # beginning of all names, which hides what tells them apart
        self._latest: deque[Text] = deque(maxlen=N_SHOWN)
        self._n_measured = self._n_failed = 0
        self._live = Live(
            console=console, get_renderable=self.render, refresh_per_second=4, transient=True
        )
        self._live.start()

    def close(self) -> None:
        """Restore the terminal."""
        self._live.stop()

    def fetching(self, progress: Progress) -> None:
        """Show a download, a part of which arrived."""
        self._downloads[progress.file] = progress

    def measured(self, name: str, *, is_new: bool) -> None:
        """Show a measurement that was taken, now or before."""
        self._n_measured += 1

    def planned(self, runs: Sequence[PlannedRun]) -> None:
        self._downloads.clear()
        self._progress.plan(runs)
        starts = {f"{run.config.data}-{run.config.model}-" for run in runs}
        start = starts.pop() if len(starts) == 1 and len(runs) > 1 else ""
        self._common = start if all(run.folder.name.startswith(start) for run in runs) else ""

    def known(self, run: PlannedRun) -> None:
        self._progress.end(run)

    def began(self, run: PlannedRun) -> None:
        self._active[run] = {}
        if self._title is None:
            print_lines(self._console, plan(run.config, run.folder))

    def stepped(self, run: PlannedRun, entry: Mapping[str, Any]) -> None:
        self._progress.step(run, entry["step"])
        self._active[run].update(entry)  # so that the last accuracy stays visible

    def ended(self, run: PlannedRun, record: Record) -> None:
        del self._active[run]
        if record.end is not None:
            self._progress.end(run)
            style = "green" if record.end["end"] == "finished" else "yellow"
            self._latest.append(_result(result_of(record), style, self._name(run)))

    def failed(self, run: PlannedRun, reason: str) -> None:
        del self._active[run]
        self._n_failed += 1
        self._progress.end(run)
        self._latest.append(_result(f"failed: {reason}", "red", self._name(run)))

    def render(self) -> Group:
        """Draw the board."""
        is_long, width = self._title is not None, min(BAR_WIDTH, self._console.width // 6)
        rows = Table.grid(padding=(0, 2, 0, 0), expand=True)
        rows.add_column(width=width)
        rows.add_column(justify="right", no_wrap=True)
        rows.add_column(ratio=1, no_wrap=is_long, overflow="ellipsis")  # names are cut, not counts
        for file in self._downloads.values():
            bar = ProgressBar(total=file.total, completed=file.done, width=width)
            rows.add_row(bar, f"{file.done / 1e6:.1f} MB", f"{file.file} from {file.source}")
        for run, entry in self._active.items():
            step, n_steps = entry.get("step", 0), run.config.n_steps
            bar = ProgressBar(total=n_steps, completed=step, width=width)
            rows.add_row(bar, f"{step:,}/{n_steps:,}", self._words(run, entry))
        head = [Text(self._title, style="bold")] if self._title is not None else []
        return Group(*head, Text(", ".join(self._counts())), rows, *self._latest)

    def _name(self, run: PlannedRun) -> str:
        name = run.folder.name
        return f"…{name.removeprefix(self._common)}" if self._common else name

    def _words(self, run: PlannedRun, entry: Mapping[str, Any]) -> Text:
        if self._title is not None:
            return Text(f"{percent(entry.get('accuracy')):>7}  {self._name(run)}")
        return Text("  ".join(progress_words(entry, run.config.n_rows)) if entry else "starting")

    def _counts(self) -> list[str]:
        rate, left = self._progress.rate, self._progress.seconds_left
        n = self._n_measured
        words = [f"{n} measurement{'s' if n > 1 else ''}"] if n else []
        if self._title is not None and self._progress.n_runs:
            words.append(f"{self._progress.n_done} of {self._progress.n_runs} runs")
        words += [f"{self._n_failed} failed"] if self._n_failed else []
        words += [] if rate is None else [f"{rate:.1f} steps/s"]
        return words + ([] if left is None else [f"{duration(left)} left"])


def print_lines(console: Console, lines: Lines) -> None:
    """Print labels and texts; the terminal wraps long lines, so that commands can be copied."""
    width = max(len(label) for label, _ in lines)
    for label, text in lines:
        console.print(Text.assemble((label.ljust(width), "cyan"), "  ", text), soft_wrap=True)


def _result(result: str, style: str, name: str) -> Text:
    return Text.assemble((result, style), f"  {name}", overflow="ellipsis", no_wrap=True)
