"""Time, as the least of several."""

import time
from collections.abc import Callable, Mapping


def least_seconds(calls: Mapping[str, Callable[[], object]], n_rounds: int) -> dict[str, float]:
    """The least time of each call over so many rounds, in turns, after one that warms up."""
    best = dict.fromkeys(calls, float("inf"))
    for round_ in range(n_rounds + 1):
        for name, call in calls.items():
            started = time.perf_counter()
            call()
            if round_ > 0:
                best[name] = min(best[name], time.perf_counter() - started)
    return best
