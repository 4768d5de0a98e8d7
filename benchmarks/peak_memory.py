"""Peak memory of a call beyond what stood before it, as the kernel counts it (Linux)."""

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def _status(key: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(key))
    return int(line.split()[1]) * 1024


def extra_bytes(call: Callable[[], object]) -> int:
    """The most bytes that the process held during `call` beyond those it held before."""
    gc.collect()
    _CLEAR.write_text("5")  # resets the high-water mark
    before = _status("VmRSS")
    result = call()
    peak = _status("VmHWM")
    del result
    return max(0, peak - before)


def fresh_peak_bytes(module: str, function: str, *arguments: str) -> int:
    """Peak bytes of a new process that calls the result of `function(*arguments)` three times.

    The allocator is told to give freed memory back at once, so that only what is in use counts.
    """
    call = ", ".join(repr(argument) for argument in arguments)
    code = (
        f"from {module} import {function}\n"
        "from benchmarks.peak_memory import _status\n"
        f"step = {function}({call})\n"
        "for _ in range(3): step()\n"
        'print(_status("VmHWM"))\n'
    )
    allocator = {"MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | allocator,
    )
    return int(done.stdout)
