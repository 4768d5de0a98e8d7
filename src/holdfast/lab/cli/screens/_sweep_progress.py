"""How far a sweep is."""

import time
from typing import final

from holdfast.lab.config import Config


@final
class SweepProgress:
    """Counts steps, and tells from those made here how long the others will take."""

    def __init__(self) -> None:
        self.n_runs = 0
        self.n_done = 0
        self.n_steps = 0
        """Of all runs together."""
        self._n_behind = 0
        self._in_hand: dict[int, int] = {}
        self._n_made = 0
        self._since: float | None = None

    def plan(self, configs: list[Config]) -> None:
        """These runs are to be made."""
        self.n_runs = len(configs)
        self.n_steps = sum(config.n_steps for config in configs)

    def step(self, worker: int, step: int) -> None:
        """A worker's run is at this step."""
        if self._since is None:
            self._since = time.monotonic()
        self._n_made += step - self._in_hand.get(
            worker, step
        )  # what was made before a stop is not counted
        self._in_hand[worker] = step

    def end(self, worker: int | None, config: Config) -> None:
        """A run is over, for whatever reason: of its steps none are left."""
        self.n_done += 1
        self._n_behind += config.n_steps
        if worker is not None:
            self._in_hand.pop(worker, None)

    @property
    def n_steps_behind(self) -> int:
        """Steps that need not be made any more."""
        return self._n_behind + sum(self._in_hand.values())

    def seconds_left(self) -> float | None:
        """At the rate so far; None as long as there is none."""
        if self._since is None or not self._n_made:
            return None
        rate = self._n_made / max(time.monotonic() - self._since, 1e-9)
        return (self.n_steps - self.n_steps_behind) / rate
