"""Peak memory of a call beyond what stood before it, as the kernel counts it (Linux)."""

import gc
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
