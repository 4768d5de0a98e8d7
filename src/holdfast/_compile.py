"""Column kernels that compile themselves once that has paid for itself.

A kernel is a function of a chunk [n, c] that treats all columns alike. It runs in plain torch until it has taken as long as a
compilation is expected to take; then it is compiled, once, and announced. Whatever the future brings, this costs at most
twice what the better choice would have cost. Compiled or not, the result is the same bit for bit: a kernel is made of
elementwise operations in a fixed order. If compilation fails (no compiler, an unsupported device), plain torch goes on.

The environment variable `HOLDFAST_COMPILE` may be `auto` (this), `always` (compile at first use) or `never`.
"""

import logging
import os
import time
from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from holdfast.checks import failure

WIDTH = 32768
"""Columns of a chunk: the fastest in plain torch, and the one shape that is compiled."""

PAYBACK_SECONDS = 30.0
"""About what a compilation costs, its first import of the compiler included."""

MOST_ROWS = 64
"""A median of so many rows compiles in about 20 seconds, one of 128 in nearly a minute: more than the payback allows for."""

_log = logging.getLogger("holdfast")
_kernels: dict[Hashable, "ColumnKernel"] = {}


class ColumnKernel:
    """A function of chunks [n, c] -> [c] that switches itself from plain to compiled."""

    def __init__(self, function: Callable[[Tensor], Tensor], name: str, n: int) -> None:
        self._function = function
        self._name = name
        self._n = n
        self._plain_seconds = 0.0
        self._compiled: Callable[[Tensor], Tensor] | None = None
        self._failed = False

    @property
    def is_compiled(self) -> bool:
        """Whether the next chunk will be handed to compiled code."""
        return self._compiled is not None

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
        _log.warning(
            "Compiling %s for %d rows, once; HOLDFAST_COMPILE=never would avoid it.",
            self._name,
            self._n,
        )
        try:
            compiled = torch.compile(self._function, dynamic=False)
            compiled(_padded(chunk))
        except (
            Exception
        ) as error:  # any failure of the compiler leaves plain torch, which needs none
            _log.info("Compilation of %s failed (%s); plain torch goes on.", self._name, error)
            self._failed = True
        else:
            self._compiled = compiled


def _mode() -> str:
    mode = os.environ.get("HOLDFAST_COMPILE", "auto")
    if mode not in ("auto", "always", "never"):
        raise failure("HOLDFAST_COMPILE", "be auto, always or never", mode)
    return mode


def _padded(chunk: Tensor) -> Tensor:
    """A contiguous copy of exactly WIDTH columns, so that one compilation serves rows of any number and layout of columns."""
    padded = torch.zeros(chunk.shape[0], WIDTH, dtype=chunk.dtype, device=chunk.device)
    padded[:, : chunk.shape[1]] = chunk
    return padded


def column_kernel(
    key: Hashable, make: Callable[[], Callable[[Tensor], Tensor]], name: str, n: int
) -> ColumnKernel:
    """The kernel for `key`, made at its first use."""
    if key not in _kernels:
        _kernels[key] = ColumnKernel(make(), name, n)
    return _kernels[key]
