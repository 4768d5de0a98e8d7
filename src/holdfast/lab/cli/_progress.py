"""Progress of a sweep."""

import time
from collections.abc import Sequence
from typing import final

from holdfast.lab.sweep import PlannedRun


@final
class SweepProgress:
    """Counts runs and steps, and estimates the time left."""

    def __init__(self) -> None:
        self.n_runs = 0
        self.n_done = 0
        self._left: dict[PlannedRun, int] = {}
        self._n_made = 0
        self._since = 0.0

    def plan(self, runs: Sequence[PlannedRun]) -> None:
        """Count these runs, none of which is done."""
        self.n_runs = len(runs)
        self._left = {run: run.config.n_steps for run in runs}

    def step(self, run: PlannedRun, step: int) -> None:
        """Note that a run has made this step."""
        self._left[run] = run.config.n_steps - step
        if self._since == 0.0:
            self._since = time.monotonic()  # the first step includes the warm-up
        else:
            self._n_made += 1

    def end(self, run: PlannedRun) -> None:
        """Note that a run is over, for whatever reason: none of its steps is left."""
        self.n_done += 1
        self._left[run] = 0

    @property
    def rate(self) -> float | None:
        """Steps per second in all runs, or None if unknown."""
        seconds = max(time.monotonic() - self._since, 1e-9)
        return self._n_made / seconds if self._n_made else None

    @property
    def seconds_left(self) -> float | None:
        """Estimated time until all runs are over, or None if unknown."""
        rate = self.rate
        return None if rate is None else sum(self._left.values()) / rate
