"""Number of cores and threads to use."""

import os
from pathlib import Path

import torch

QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""On Linux: a container's microseconds of CPU time (or "max") and the period they refer to."""


def n_cores() -> int:
    """Number of cores that this process may use, by its affinity and its container's quota."""
    n = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = map(float, QUOTA.read_text().split())
    except (OSError, ValueError):  # no quota
        return n
    return max(1, min(n, int(quota / period)))


def threads_each(n_workers: int) -> int:
    """Number of threads of each of `n_workers` processes: its share of the cores.

    At most torch's number of threads in this process, which OMP_NUM_THREADS can lower.
    """
    return max(1, min(n_cores() // n_workers, torch.get_num_threads()))
