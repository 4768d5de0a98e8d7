"""Compiled column kernels: the same bits, logged once, never required."""

import logging
from typing import Any

import pytest
import torch
from torch import Tensor

from holdfast import _compile
from holdfast._compile import ColumnKernel
from holdfast.aggregators import CoordinateMedian, MeanAroundMedian
from tests.samples import gaussian


@pytest.fixture(autouse=True)
def fresh_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_compile, "_kernels", {})


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler itself
def test_compiled_and_plain_agree_bit_for_bit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On the kernel with the most kinds of operations: medians, ranks, comparisons and a sum."""
    rule = MeanAroundMedian(n_bad=1)
    rows = [gaussian(5, 40_000, 1), gaussian(5, 7, 2)]
    plain = rule(rows)
    monkeypatch.setenv("HOLDFAST_COMPILE", "always")
    monkeypatch.setattr(_compile, "_kernels", {})
    with caplog.at_level(logging.INFO, logger="holdfast"):
        compiled = [rule(rows), rule(rows)]
    assert all(torch.equal(result, plain) for result in compiled)
    (kernel,) = _compile._kernels.values()
    assert kernel._compiled is not None
    assert [record.message for record in caplog.records] == [
        "Compiling MeanAroundMedian(n_bad=1) for 5 rows, once; "
        "HOLDFAST_COMPILE=never would avoid it."
    ]


def test_a_failing_compiler_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("no compiler")

    rows = gaussian(5, 100)
    plain = CoordinateMedian()(rows)
    monkeypatch.setenv("HOLDFAST_COMPILE", "always")
    monkeypatch.setattr(_compile, "_kernels", {})
    monkeypatch.setattr(torch, "compile", refuse)
    assert torch.equal(CoordinateMedian()(rows), plain)
    assert torch.equal(CoordinateMedian()(rows), plain)


def test_compilation_waits_until_it_has_paid_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []

    def fake(function: Any, **_: Any) -> Any:
        compiled.append(function)
        return function

    monkeypatch.setenv("HOLDFAST_COMPILE", "auto")
    monkeypatch.setattr(torch, "compile", fake)
    clock = iter(range(1000))  # every plain call takes ten seconds
    monkeypatch.setattr("holdfast._compile.time.perf_counter", lambda: 10.0 * next(clock))
    kernel = ColumnKernel(lambda chunk: chunk.sum(0), "a sum", 3)
    chunk = gaussian(3, 10)
    seen = []
    for _ in range(6):
        assert torch.equal(kernel(chunk), chunk.sum(0))
        seen.append(len(compiled))
    assert seen == [0, 0, 0, 0, 1, 1]


def test_too_many_rows_are_never_compiled(compile_always: None) -> None:
    def total(chunk: Tensor) -> Tensor:
        return chunk.sum(0)

    kernel = ColumnKernel(total, "a sum", _compile.MOST_ROWS + 1)
    kernel(gaussian(_compile.MOST_ROWS + 1, 10))
    assert kernel._compiled is None


def test_an_unknown_mode_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_COMPILE", "off")
    with pytest.raises(
        ValueError, match=r"`HOLDFAST_COMPILE` must be auto, always or never, got off\."
    ):
        CoordinateMedian()(gaussian(5, 10))
