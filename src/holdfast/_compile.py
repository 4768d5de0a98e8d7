"""Column kernels that are compiled when compilation is expected to pay.

A kernel is a function of a chunk [n, c] that treats all columns alike. It runs in plain torch until
it has taken as long as a compilation is expected to take; then it is compiled, once, with a log
message. So the total cost is at most twice that of the better choice, however long the program
runs. Compiled and plain results are bitwise equal, because a kernel consists of elementwise
operations in a fixed order. If compilation fails (no compiler, an unsupported device), plain torch
remains in use.

The environment variable `HOLDFAST_COMPILE` selects `auto` (this behavior, the default), `always`
(compile at first use) or `never`.
"""

import logging
import os
import time
from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from holdfast._typing import ColumnFunction
from holdfast.checks import failure

WIDTH = 32768
"""Columns of a chunk: the fastest in plain torch, and the only shape that is compiled."""

PAYBACK_SECONDS = 30.0
"""About the cost of a compilation, including the first import of the compiler."""

MOST_ROWS = 64
"""A median of 64 rows compiles in about 20 s, of 128 rows in a minute: longer than the payback."""

_log = logging.getLogger("holdfast")
_kernels: dict[Hashable, "ColumnKernel"] = {}


class ColumnKernel:
    """A function of chunks [n, c] -> [c] that is compiled after some use."""

    def __init__(self, function: ColumnFunction, name: str, n: int) -> None:
        self._function = function
        self._name = name
        self._n = n
        self._plain_seconds = 0.0
        self._compiled: ColumnFunction | None = None
        self._failed = False

    def __call__(self, chunk: Tensor) -> Tensor:
        mode = _mode()
        if self._should_compile(mode):
            self._compile(chunk)
        if self._compiled is not None and mode != "never":
            return self._compiled(_padded(chunk))[: chunk.shape[1]]
        started = time.perf_counter()
        result = self._function(chunk)
        self._plain_seconds += time.perf_counter() - started
        return result

    def _should_compile(self, mode: str) -> bool:
        if self._compiled is not None or self._failed or mode == "never" or self._n > MOST_ROWS:
            return False
        return mode == "always" or self._plain_seconds > PAYBACK_SECONDS

    def _compile(self, chunk: Tensor) -> None:
        message = "Compiling %s for %d rows, once; HOLDFAST_COMPILE=never would avoid it."
        _log.warning(message, self._name, self._n)
        try:
            compiled = torch.compile(self._function, dynamic=False)
            compiled(_padded(chunk))
        except Exception as error:  # plain torch works without a compiler
            _log.info("Compilation of %s failed (%s); plain torch is used.", self._name, error)
            self._failed = True
        else:
            self._compiled = compiled


def _mode() -> str:
    mode = os.environ.get("HOLDFAST_COMPILE", "auto")
    if mode not in ("auto", "always", "never"):
        raise failure("HOLDFAST_COMPILE", "be auto, always or never", mode)
    return mode


def _padded(chunk: Tensor) -> Tensor:
    """A contiguous copy of WIDTH columns, so that one compilation serves all widths and strides."""
    padded = torch.zeros(chunk.shape[0], WIDTH, dtype=chunk.dtype, device=chunk.device)
    padded[:, : chunk.shape[1]] = chunk
    return padded


def column_kernel(
    key: Hashable, make: Callable[[], ColumnFunction], name: str, n: int
) -> ColumnKernel:
    """Return the kernel for `key`, made at its first use."""
    if key not in _kernels:
        _kernels[key] = ColumnKernel(make(), name, n)
    return _kernels[key]
