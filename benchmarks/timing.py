"""Times as ratios within one run: candidates take turns, and the minimum of several counts.

The machine may be shared and noisy. What disturbs one candidate disturbs its neighbours in the same
round, and no disturbance makes anything faster.
"""

import time
from collections.abc import Callable, Mapping


def interleaved(candidates: Mapping[str, Callable[[], object]], n_rounds: int) -> dict[str, float]:
    """The least time in seconds of each candidate over `n_rounds` rounds, after a warm-up round."""
    best = dict.fromkeys(candidates, float("inf"))
    for round_ in range(n_rounds + 1):
        for name, candidate in candidates.items():
            started = time.perf_counter()
            candidate()
            elapsed = time.perf_counter() - started
            if round_ > 0:
                best[name] = min(best[name], elapsed)
    return best


def once(candidate: Callable[[], object]) -> float:
    """The time in seconds of one call, for candidates too slow to repeat."""
    started = time.perf_counter()
    candidate()
    return time.perf_counter() - started
