"""How much of the machine there is to use."""

import os
from pathlib import Path

import torch

QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Where Linux tells a container how many microseconds of CPU it has in each period, or "max"."""


def n_cores() -> int:
    """How many cores this process may use, by its affinity and by its container's quota; at least 1."""
    n = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        share, period = map(float, QUOTA.read_text().split())
    except (OSError, ValueError):  # there is none
        return n
    return max(1, min(n, int(share / period)))


def threads_each(n_workers: int) -> int:
    """How many threads each of so many processes computes with: its part of the cores, and no more than torch takes here, which heeds OMP_NUM_THREADS."""
    return max(1, min(n_cores() // n_workers, torch.get_num_threads()))
