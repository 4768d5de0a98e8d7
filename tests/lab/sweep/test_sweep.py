"""A sweep trains every run once, whatever happens in between."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast.errors import MissingDataError
from holdfast.lab.config import Config, hash_of, run_name
from holdfast.lab.records import Record, load_checkpoint, read_record
from holdfast.lab.sweep import (
    PlannedRun,
    SweepObserver,
    _cores,
    _process,
    n_cores,
    plan_runs,
    sweep,
)
from holdfast.lab.sweep._cores import threads_each
from holdfast.lab.training import run
from tests.lab.cases import tiny

SHORT = [tiny("mean", seed=seed) for seed in range(3)] + [tiny("bgmd", "scaled-flip", seed=7)]
LONG = [replace(config, n_steps=100_000, evaluate_every=20) for config in SHORT]
"""Runs that are always stopped or killed."""


@dataclass
class Events(SweepObserver):
    """Keeps all events."""

    events: list[tuple[str, str]] = field(default_factory=list)
    entries: dict[PlannedRun, list[Mapping[str, Any]]] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    on_step: Callable[[], None] = lambda: None

    def planned(self, runs: Sequence[PlannedRun]) -> None:
        self.events.append(("planned", str(len(runs))))

    def known(self, run: PlannedRun) -> None:
        self.add("known", run)

    def began(self, run: PlannedRun) -> None:
        self.add("began", run)
        self.entries[run] = []

    def stepped(self, run: PlannedRun, entry: Mapping[str, Any]) -> None:
        self.entries[run].append(entry)
        self.on_step()

    def ended(self, run: PlannedRun, record: Record) -> None:
        self.add("ended" if record.end else "stopped", run)

    def failed(self, run: PlannedRun, reason: str) -> None:
        self.add("failed", run)
        self.reasons.append(reason)

    def add(self, kind: str, run: PlannedRun) -> None:
        self.events.append((kind, hash_of(run.config)))

    def count(self, kind: str) -> int:
        return sum(event == kind for event, _ in self.events)


def assert_complete(folder: Path, configs: list[Config], tmp_path: Path) -> None:
    """Every run has the record that it has without a sweep."""
    for i, config in enumerate(configs):
        alone = run(config, tmp_path / "alone" / str(i))
        assert read_record(folder / run_name(config)).without_times() == alone.without_times()


def has_entries(events: Events, planned: PlannedRun) -> bool:
    return len(events.entries.get(planned, ())) > 3


def resume_all(runs: list[PlannedRun], tmp_path: Path) -> Events:
    """Resume the runs one by one for a few steps; then they equal runs without interruption."""
    events = Events()
    for i, planned in enumerate(runs):
        result = sweep([planned], events, n_workers=1, stop=partial(has_entries, events, planned))
        assert (result.was_stopped, result.failures) == (True, [])
        record = read_record(planned.folder)
        n_before = events.entries[planned][0]["step"] - 1
        assert events.entries[planned] == record.entries[n_before:]
        # Asked after every step, it says False until the step at which the other run stopped.
        answers = iter([*[False] * (record.n_steps - 1), True])
        alone = run(planned.config, tmp_path / f"alone {i}", stop=partial(next, answers))
        assert record.without_times() == alone.without_times()
    return events


def files(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def processes(*options: str) -> list[int]:
    """Ids of the running processes that pgrep finds."""
    found = subprocess.run(["pgrep", "-r", "R,S,D", *options], capture_output=True, check=False)
    return [int(line) for line in found.stdout.split()]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_every_run_is_trained_once(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    first, second = Events(), Events()
    result = sweep(plan_runs(SHORT, folder), first, n_workers=2)
    assert (result.n_runs, result.n_ended, result.failures, result.was_stopped) == (4, 4, [], False)
    assert first.events[0] == ("planned", "4")
    assert (first.count("began"), first.count("ended")) == (4, 4)
    assert_complete(folder, SHORT, tmp_path)
    for planned, entries in first.entries.items():
        record = read_record(planned.folder)
        assert entries == record.entries
        assert record.run["machine"]["threads"] == threads_each(2)
    before = files(folder)
    assert sweep(plan_runs(SHORT, folder), second, n_workers=2) == result
    assert (second.count("known"), second.count("began")) == (4, 0)
    assert files(folder) == before


def test_options_reach_the_run(tmp_path: Path) -> None:
    planned = PlannedRun(SHORT[0], tmp_path / "run")
    sweep([planned], Events(), n_workers=1, n_threads=3, tensorboard=True, command=["holdfast"])
    record = read_record(planned.folder)
    assert (record.run["machine"]["threads"], record.run["command"]) == (3, ["holdfast"])
    assert list((planned.folder / "tensorboard").iterdir())


def test_runs_are_known_by_their_hash_whatever_their_folder_is_called(tmp_path: Path) -> None:
    run(SHORT[0], tmp_path / "by hand")
    events = Events()
    runs = plan_runs(SHORT[:1], tmp_path)
    sweep(runs, events, n_workers=1)
    assert runs == [PlannedRun(SHORT[0], tmp_path / "by hand")]
    assert events.events[1:] == [("known", hash_of(SHORT[0]))]
    assert not (tmp_path / run_name(SHORT[0])).exists()


def test_of_two_folders_of_one_run_the_further_one_goes_on(tmp_path: Path) -> None:
    for name, n_steps in (("a short", 1), ("b damaged", 3), ("c far", 2), ("d short", 1)):
        run(SHORT[0], tmp_path / name, stop=iter([*[False] * (n_steps - 1), True]).__next__)
    (tmp_path / "b damaged" / "metrics.jsonl").write_text("no line of ours\n")
    runs, events = plan_runs(SHORT[:1], tmp_path), Events()
    assert runs == [PlannedRun(SHORT[0], tmp_path / "c far")]
    assert sweep(runs, events, n_workers=1).n_ended == 1
    assert [entry["step"] for entry in events.entries[runs[0]]] == [3, 4, 5]
    assert plan_runs(SHORT[:1], tmp_path) == runs


def test_an_ended_record_of_another_run_is_no_known_run(tmp_path: Path) -> None:
    run(SHORT[0], tmp_path / "taken")
    planned, events = PlannedRun(SHORT[1], tmp_path / "taken"), Events()
    assert not planned.has_ended
    assert PlannedRun(SHORT[0], tmp_path / "taken").has_ended
    result = sweep([planned], events, n_workers=1)
    assert (result.n_ended, events.count("known"), events.count("failed")) == (0, 0, 1)
    assert "be new, or hold this very run" in result.failures[0]


def test_runs_that_ended_elsewhere_are_skipped(tmp_path: Path) -> None:
    events, known = Events(), {hash_of(SHORT[0])}
    runs = plan_runs(SHORT[:2], tmp_path, known=known)
    result = sweep(runs, events, n_workers=1, known=known)
    assert (result.n_ended, result.failures) == (2, [])
    assert events.events[1:] == [
        ("known", hash_of(SHORT[0])),
        ("began", hash_of(SHORT[1])),
        ("ended", hash_of(SHORT[1])),
    ]
    assert [path.name for path in tmp_path.iterdir()] == [run_name(SHORT[1])]


def test_a_stop_leaves_runs_that_can_be_resumed(tmp_path: Path) -> None:
    folder, events = tmp_path / "runs", Events()
    runs = plan_runs(LONG[:3], folder)
    result = sweep(runs, events, n_workers=2, stop=lambda: all(map(events.entries.get, runs[:2])))
    assert (result.was_stopped, result.n_ended, result.failures) == (True, 0, [])
    assert (events.count("began"), events.count("stopped")) == (2, 2)
    assert not runs[2].folder.exists()
    # As after a kill: entries that no checkpoint covers, which are dropped and made again.
    n_made = read_record(runs[0].folder).n_steps
    line = json.dumps({"step": n_made + 1, "loss": 7.0, "seconds": {}})
    with (runs[0].folder / "metrics.jsonl").open("a") as file:
        file.write(f'{line}\n{{"step"')
    again = resume_all(runs[:2], tmp_path)
    assert again.entries[runs[0]][0]["step"] == n_made + 1


def test_a_run_that_is_killed_is_reported_and_the_others_continue(tmp_path: Path) -> None:
    def kill() -> None:
        # Further entries of the first run may come after its death, when there is no process.
        for process in multiprocessing.active_children() if len(events.entries) == 1 else ():
            process.kill()

    runs, events = plan_runs([LONG[0], *SHORT[1:]], tmp_path / "runs"), Events(on_step=kill)
    result = sweep(runs, events, n_workers=1)
    assert (result.n_ended, events.count("failed")) == (3, 1)
    reason = "The process of the run was killed by signal 9."
    assert result.failures == [f"{runs[0].folder.name}: {reason}"]
    resume_all(runs[:1], tmp_path)


def test_a_run_that_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # this machine may have CIFAR-10
    monkeypatch.delenv("HOLDFAST_DATA", raising=False)
    folder = tmp_path / "runs"
    configs = [*SHORT, replace(SHORT[0], data="cifar-10"), replace(SHORT[0], seed=9)]
    places = [folder / run_name(config) for config in configs]
    for i in (0, 1, 2, 5):
        run(configs[i], places[i], stop=lambda: True)
    (places[0] / "run.json").write_text("{")
    content = json.loads((places[1] / "run.json").read_text())
    (places[1] / "run.json").write_text(json.dumps(content | {"version": 99}))
    (places[2] / "metrics.jsonl").write_text("nonsense\n")
    (places[5] / "checkpoint.pt").write_bytes(b"nonsense")
    events = Events()
    result = sweep(plan_runs(configs, folder), events, n_workers=2, data_dir=tmp_path / "none")
    assert (result.n_ended, len(result.failures), len(result.errors)) == (1, 5, 5)
    assert events.count("ended") == 1
    for reason, error in zip(events.reasons, result.errors, strict=True):
        assert reason == " ".join(str(error).split())
        assert "Traceback" in error.__notes__[0]
    assert sorted(reason.split(",")[0] for reason in events.reasons) == [
        "`data_dir` must hold cifar-10 (data_batch_1.bin and 5 more files",
        "`folder` must hold a record of version 1 or older",
        "`folder` must hold a whole record",
        "`folder` must hold a whole run.json",
        "`path` must be a whole checkpoint",
    ]


def test_the_environment_of_the_moment_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path / "data"))
    planned = PlannedRun(replace(SHORT[0], data="cifar-10"), tmp_path / "run")
    result = sweep([planned], Events(), n_workers=1)
    (error,) = result.errors
    assert isinstance(error, MissingDataError)
    assert "holdfast data fetch cifar-10" in str(error)


class StrangeError(Exception):
    """Cannot be read after it was sent."""

    def __init__(self, *, value: int) -> None:
        super().__init__(f"strange\n{value}")


def test_any_error_can_be_sent() -> None:
    for error, reason in (
        (StrangeError(value=3), "StrangeError: strange 3"),
        (OSError("no"), "no"),
    ):
        sent = _process._picklable(error)
        assert reason in _process.reason_of(sent)


def test_a_stop_before_the_first_run(tmp_path: Path) -> None:
    events = Events()
    result = sweep(plan_runs(SHORT, tmp_path), events, n_workers=1, stop=lambda: True)
    assert result.was_stopped
    assert events.events == [("planned", "4")]
    assert not list(tmp_path.iterdir())


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_an_exception_in_the_sweep_kills_its_runs(tmp_path: Path) -> None:
    """Such as a second Ctrl-C."""
    with pytest.raises(KeyboardInterrupt) as stopped:
        sweep(plan_runs(LONG[:2], tmp_path), Events(on_step=interrupt), n_workers=2)
    assert not multiprocessing.active_children()
    assert stopped.tb  # which holds all frames, so that nothing was closed by chance


def test_a_signal_while_a_process_starts_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = _process.CONTEXT.Process.start

    def start_and_interrupt(process: Any) -> None:
        start(process)
        interrupt()

    monkeypatch.setattr(_process.CONTEXT.Process, "start", start_and_interrupt)
    with pytest.raises(KeyboardInterrupt) as stopped:
        sweep(plan_runs(LONG[:2], tmp_path), Events(), n_workers=2)
    assert not multiprocessing.active_children()
    assert stopped.tb


PROGRAM = """
import signal
import sys
from holdfast.lab.sweep import plan_runs, sweep
from tests.lab.sweep.test_sweep import LONG, Events

if __name__ == "__main__":
    asked = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.append(True))
    runs = plan_runs(LONG[:2], sys.argv[1])
    result = sweep(runs, Events(), n_workers=2, stop=lambda: bool(asked))
    print("stopped" if result.was_stopped else "done")
    sys.exit(len(result.failures))
"""


def start_program(tmp_path: Path) -> subprocess.Popen[str]:
    (tmp_path / "program.py").write_text(PROGRAM)
    return subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py"), str(tmp_path / "runs")],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_signals_to_all_processes_are_a_stop_and_no_failure(tmp_path: Path) -> None:
    """They reach the fork server while it is still importing, and the runs."""
    process = start_program(tmp_path)
    wait_until(lambda: bool(processes("-P", str(process.pid), "-f", "forkserver")))
    for number in (signal.SIGINT, signal.SIGTERM):
        os.killpg(process.pid, number)
    out, error = process.communicate(timeout=120)
    assert (process.returncode, out, error) == (0, "stopped\n", "")
    wait_until(lambda: not processes("-g", str(process.pid)))


@pytest.mark.slow
def test_a_sweep_that_is_killed_leaves_no_process_and_is_resumed(tmp_path: Path) -> None:
    process = start_program(tmp_path)
    runs = plan_runs(LONG[:2], tmp_path / "runs")
    records = [planned.folder / "metrics.jsonl" for planned in runs]
    try:
        wait_until(lambda: all(path.exists() and path.stat().st_size for path in records))
    finally:
        process.kill()
        process.communicate()
    wait_until(lambda: not processes("-g", str(process.pid)))
    for planned, path in zip(runs, records, strict=True):  # stopped with a checkpoint
        checkpoint = load_checkpoint(planned.folder / "checkpoint.pt")
        assert checkpoint["n_bytes"] == path.stat().st_size
    resume_all(runs, tmp_path)


def test_a_container_s_quota_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cpu.max"
    monkeypatch.setattr(_cores, "QUOTA", path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert n_cores() == 8
    wanted = {
        "150000 100000": 1,
        "50000 100000": 1,
        "100000000 100000": 8,
        "max 100000": 8,
        "": 8,
    }
    for quota, n in wanted.items():
        path.write_text(quota)
        assert n_cores() == n, quota


def test_threads_are_a_part_of_the_cores_and_no_more_than_torch_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_cores, "n_cores", lambda: 8)
    for n_torch, n_workers, n in ((8, 2, 4), (3, 2, 3), (1, 1, 1), (8, 16, 1)):
        monkeypatch.setattr(torch, "get_num_threads", lambda n_torch=n_torch: n_torch)
        assert threads_each(n_workers) == n, (n_torch, n_workers)
