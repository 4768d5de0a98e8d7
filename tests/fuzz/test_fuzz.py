"""A short run of all targets; `make fuzz` makes a long one."""

import random
import time
from pathlib import Path

import pytest

from tests.fuzz import harness
from tests.fuzz.harness import Target, execute
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.__name__)
def test_only_documented_errors(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DATA", "")
    outcome = execute(target, tmp_path, range(max(8, TARGETS[target] // 1000)))
    assert not outcome.findings, "\n".join(trace for _, trace in outcome.findings.values())


def silent(chance: random.Random, folder: Path) -> None:
    raise KeyError(chance.random())


def endless(chance: random.Random, folder: Path) -> None:
    time.sleep(5)


def greedy(chance: random.Random, folder: Path) -> None:
    bytearray(2 * harness.MOST_BYTES)


def wordless(chance: random.Random, folder: Path) -> None:
    raise ValueError("not enough values to unpack")


def endless_message(chance: random.Random, folder: Path) -> None:
    raise ValueError("`x` must be short, got " + "x" * 5000 + ".")


@pytest.mark.parametrize("target", [silent, endless, greedy, wordless, endless_message])
def test_everything_else_is_found(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "LONGEST_SECONDS", 1)
    outcome = execute(target, tmp_path, range(1))
    assert len(outcome.findings) == 1
    assert outcome.refused == 0


def refused(chance: random.Random, folder: Path) -> None:
    if chance.random() < 0.5:
        raise ValueError("`x` must be a number, got 'y'.")


def test_refusals_are_counted_and_reproduced(tmp_path: Path) -> None:
    counts = [execute(refused, tmp_path, range(100), seed).refused for seed in (0, 0, 2)]
    assert counts[0] == counts[1] != counts[2]
    assert 0 < counts[0] < 100
