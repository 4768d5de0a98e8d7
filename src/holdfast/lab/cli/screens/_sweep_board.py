from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, final

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from holdfast.lab.cli._summary import duration, percent
from holdfast.lab.cli.screens._sweep_lines import result_of
from holdfast.lab.cli.screens._sweep_progress import SweepProgress
from holdfast.lab.config import Config
from holdfast.lab.paper.measurements import Measurement
from holdfast.lab.records import Record
from holdfast.lab.sweep import SweepObserver

N_SHOWN = 8
"""Of the runs that ended last."""


@final
class SweepBoard(SweepObserver):
    """The runs in hand with their accuracy, those that ended last, and the time left, for terminals.

    Args:
        console: the terminal.
        title: of the whole.
    """

    def __init__(self, console: Console, title: str) -> None:
        self._title = title
        self._progress = SweepProgress()
        self._in_hand: dict[int, tuple[str, Config, dict[str, Any]]] = {}
        self._latest: deque[Text] = deque(maxlen=N_SHOWN)
        self._n_measurements = self._n_measured = self._n_failed = 0
        self._live = Live(
            console=console, get_renderable=self._render, refresh_per_second=4, transient=True
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def planned(self, n_measurements: int, configs: list[Config]) -> None:
        self._n_measurements = n_measurements
        self._progress.plan(configs)

    def measured(self, measurement: Measurement, *, is_new: bool) -> None:
        self._n_measured += 1

    def not_measured(self, measurement: Measurement, reason: str) -> None:
        self._n_failed += 1
        self._latest.append(Text.assemble((f"failed: {reason}", "red"), f"  {measurement.name}"))

    def known(self, config: Config) -> None:
        self._progress.end(None, config)

    def began(self, worker: int, config: Config, folder: Path) -> None:
        self._in_hand[worker] = (folder.name, config, {})

    def stepped(self, worker: int, entry: Mapping[str, Any]) -> None:
        self._progress.step(worker, entry["step"])
        self._in_hand[worker][2].update(entry)

    def ended(self, worker: int, config: Config, record: Record) -> None:
        if record.end is None:  # the whole sweep stops
            self._in_hand.pop(worker)
        else:
            self._close(
                worker,
                config,
                result_of(record),
                "green" if record.end["end"] == "finished" else "yellow",
            )

    def failed(self, worker: int, config: Config, reason: str) -> None:
        self._n_failed += 1
        self._close(worker, config, f"failed: {reason}", "red")

    def _close(self, worker: int, config: Config, result: str, style: str) -> None:
        self._progress.end(worker, config)
        name, _, _ = self._in_hand.pop(worker)
        self._latest.append(
            Text.assemble((result, style), f"  {name}", overflow="ellipsis", no_wrap=True)
        )

    def _render(self) -> Group:
        progress = self._progress
        words = []
        if self._n_measurements:
            words.append(f"{self._n_measured} of {self._n_measurements} measurements")
        if progress.n_runs:
            words.append(f"{progress.n_done} of {progress.n_runs} runs")
        if self._n_failed:
            words.append(f"{self._n_failed} failed")
        left = progress.seconds_left()
        if left is not None:
            words.append(f"{duration(left)} left")
        return Group(
            Text(self._title, style="bold"), Text(", ".join(words)), self._table(), *self._latest
        )

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2, 0, 0), expand=True)
        table.add_column(width=24)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(
            overflow="ellipsis", no_wrap=True, ratio=1
        )  # a long name is cut before anything else is
        for _, (name, config, entry) in sorted(self._in_hand.items()):
            step = entry.get("step", 0)
            bar = ProgressBar(total=config.n_steps, completed=step, width=24)
            table.add_row(bar, f"{step}/{config.n_steps}", percent(entry.get("accuracy")), name)
        return table
