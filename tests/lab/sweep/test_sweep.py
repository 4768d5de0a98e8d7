"""A sweep makes every run once, whatever happens in between."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast.lab.config import Config, hash_of, run_name
from holdfast.lab.paper import Plan
from holdfast.lab.paper.measurements import Measurement, ToyMedian, measurements
from holdfast.lab.records import Record, read_measurement, read_record
from holdfast.lab.sweep import SweepObserver, _cores, ended_runs, n_cores, sweep
from holdfast.lab.sweep._cores import threads_each
from holdfast.lab.sweep._workers import Workers
from holdfast.lab.training import run
from tests.lab.cases import tiny

SHORT = [tiny("mean", seed=seed) for seed in range(3)] + [tiny("bgmd", "scaled-flip", seed=7)]
LONG = [replace(config, n_steps=120, evaluate_every=100) for config in SHORT]


@dataclass
class Diary(SweepObserver):
    """Writes down what it is told."""

    events: list[tuple[str, Any]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    on_step: Callable[[], None] = lambda: None
    n_steps: int = 0

    def planned(self, n_measurements: int, configs: list[Config]) -> None:
        self.events.append(("planned", (n_measurements, len(configs))))

    def measured(self, measurement: Measurement, *, is_new: bool) -> None:
        self.events.append(("measured", is_new))

    def not_measured(self, measurement: Measurement, reason: str) -> None:
        self.events.append(("not measured", measurement))
        self.reasons.append(reason)

    def known(self, config: Config) -> None:
        self.events.append(("known", hash_of(config)))

    def began(self, worker: int, config: Config, folder: Path) -> None:
        self.events.append(("began", hash_of(config)))

    def stepped(self, worker: int, entry: Mapping[str, Any]) -> None:
        self.n_steps += 1
        self.on_step()

    def ended(self, worker: int, config: Config, record: Record) -> None:
        self.events.append(("ended" if record.end else "stopped", hash_of(config)))

    def failed(self, worker: int, config: Config, reason: str) -> None:
        self.events.append(("failed", hash_of(config)))
        self.reasons.append(reason)

    def count(self, kind: str) -> int:
        return sum(event == kind for event, _ in self.events)


def plan_of(configs: list[Config], *measurements: Measurement) -> Plan:
    return Plan(title="test", about="test", configs=tuple(configs), measurements=measurements)


def assert_all_there(folder: Path, configs: list[Config], tmp_path: Path) -> None:
    """Every run has the record that it would have had alone."""
    for i, config in enumerate(configs):
        alone = run(config, tmp_path / "alone" / str(i))
        assert read_record(folder / run_name(config)).without_times() == alone.without_times()


def test_every_run_is_made_once(tmp_path: Path) -> None:
    first, second = Diary(), Diary()
    result = sweep(
        plan_of(SHORT, ToyMedian(bad_fraction=0.1, n_draws=2)),
        tmp_path / "runs",
        first,
        n_workers=2,
    )
    assert (result.n_runs, result.n_ended, result.failures, result.was_stopped) == (4, 4, [], False)
    assert first.events[:2] == [("planned", (1, 4)), ("measured", True)]
    assert (first.count("began"), first.count("ended")) == (4, 4)
    assert first.n_steps
    assert_all_there(tmp_path / "runs", SHORT, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*")}
    again = sweep(
        plan_of(SHORT, ToyMedian(bad_fraction=0.1, n_draws=2)),
        tmp_path / "runs",
        second,
        n_workers=2,
    )
    assert again == result
    assert (second.count("known"), second.count("began")) == (4, 0)
    assert ("measured", False) in second.events
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*")} == before


def test_runs_are_known_by_their_hash_whatever_their_folder_is_called(tmp_path: Path) -> None:
    run(SHORT[0], tmp_path / "by hand")
    diary = Diary()
    sweep(plan_of(SHORT[:1]), tmp_path, diary, n_workers=1)
    assert diary.events[1:] == [("known", hash_of(SHORT[0]))]
    assert not (tmp_path / run_name(SHORT[0])).exists()


def test_of_two_folders_of_one_run_the_further_one_goes_on(tmp_path: Path) -> None:
    for name, n_steps in (("a short", 1), ("b damaged", 3), ("c far", 2), ("d short", 1)):
        run(SHORT[0], tmp_path / name, stop=iter([*[False] * (n_steps - 1), True]).__next__)
    (tmp_path / "b damaged" / "metrics.jsonl").write_text("no line of ours\n")
    assert ended_runs(tmp_path) == frozenset()
    assert sweep(plan_of(SHORT[:1]), tmp_path, Diary(), n_workers=1).n_ended == 1
    assert [
        path.name
        for path in sorted(tmp_path.iterdir())
        if path.name != "b damaged" and read_record(path).end
    ] == ["c far"]
    assert ended_runs(tmp_path) == {hash_of(SHORT[0])}


def test_runs_that_ended_elsewhere_are_not_made(tmp_path: Path) -> None:
    diary = Diary()
    result = sweep(plan_of(SHORT[:2]), tmp_path, diary, n_workers=1, known={hash_of(SHORT[0])})
    assert (result.n_ended, result.failures) == (2, [])
    assert diary.events[1:] == [
        ("known", hash_of(SHORT[0])),
        ("began", hash_of(SHORT[1])),
        ("ended", hash_of(SHORT[1])),
    ]
    assert [path.name for path in tmp_path.iterdir()] == [run_name(SHORT[1])]


def test_a_stop_leaves_runs_that_go_on(tmp_path: Path) -> None:
    diary = Diary()
    result = sweep(
        plan_of(LONG[:3]), tmp_path / "runs", diary, n_workers=2, stop=lambda: diary.n_steps >= 2
    )
    assert result.was_stopped
    assert result.n_ended == 0
    assert (diary.count("began"), diary.count("stopped")) == (2, 2)
    assert all(0 < read_record(path).n_steps < 120 for path in (tmp_path / "runs").iterdir())
    assert sweep(plan_of(LONG[:3]), tmp_path / "runs", Diary(), n_workers=1).n_ended == 3
    assert_all_there(tmp_path / "runs", LONG[:3], tmp_path)


def children() -> list[int]:
    """The processes that this one has started through multiprocessing and that are at work."""
    found = subprocess.run(
        ["pgrep", "-P", str(os.getpid()), "-f", "spawn_main"],
        capture_output=True,
        text=True,
        check=False,
    )
    return [int(line) for line in found.stdout.split()]


def test_a_worker_that_is_killed_is_replaced_and_its_run_is_told(tmp_path: Path) -> None:
    killed: list[int] = []

    def kill_one() -> None:
        if not killed:
            killed.append(children()[0])
            os.kill(killed[0], signal.SIGKILL)

    diary = Diary(on_step=kill_one)
    result = sweep(plan_of(LONG), tmp_path / "runs", diary, n_workers=2)
    assert result.n_ended == 3
    (failure,) = result.failures
    assert "was killed by signal 9" in failure
    assert failure.split(":")[0] in {run_name(config) for config in LONG}
    assert sweep(plan_of(LONG), tmp_path / "runs", Diary(), n_workers=1).n_ended == 4
    assert_all_there(tmp_path / "runs", LONG, tmp_path)


def test_what_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    places = [folder / run_name(config) for config in SHORT]
    for place in places[:3]:
        run(SHORT[places.index(place)], place)
    (places[0] / "run.json").write_text("{")
    content = json.loads((places[1] / "run.json").read_text())
    (places[1] / "run.json").write_text(json.dumps(content | {"version": 99}))
    (places[2] / "metrics.jsonl").write_text("nonsense\n")
    diary = Diary()
    result = sweep(plan_of(SHORT), folder, diary, n_workers=2)
    assert (result.n_ended, len(result.failures)) == (1, 3)
    assert diary.count("ended") == 1
    assert sorted(reason.split(",")[0] for reason in diary.reasons) == [
        "`folder` must hold a record of version 1 or older",
        "`folder` must hold a whole record",
        "`folder` must hold a whole run.json",
    ]


def test_missing_data_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("HOLDFAST_DATA", raising=False)
    result = sweep(
        plan_of([replace(SHORT[0], data="cifar-10")]), tmp_path / "runs", Diary(), n_workers=1
    )
    (failure,) = result.failures
    assert "holdfast data fetch cifar-10" in failure


def test_a_damaged_measurement_is_made_again(tmp_path: Path) -> None:
    plan = plan_of([], ToyMedian(bad_fraction=0.1, n_draws=2))
    sweep(plan, tmp_path, Diary(), n_workers=1)
    (path,) = tmp_path.iterdir()
    whole = read_measurement(path).result
    path.write_text(path.read_text()[:50])
    diary = Diary()
    sweep(plan, tmp_path, diary, n_workers=1)
    assert ("measured", True) in diary.events
    assert read_measurement(path).result == whole


class Broken(Measurement):
    """Fails in a way that nobody expected."""

    name = "broken"

    def measure(self) -> dict[str, Any]:
        raise RuntimeError("no luck")


def test_a_measurement_that_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        measurements, "to_json", lambda one: {"name": one.name, "n": getattr(one, "n", 0)}
    )
    newer = ToyMedian(bad_fraction=0.1, n=7)
    sweep(plan_of([], newer), tmp_path, Diary(), n_workers=1)
    (path,) = tmp_path.iterdir()
    text = path.read_text().replace('"version": 1', '"version": 9')
    path.write_text(text)
    diary = Diary()
    result = sweep(
        plan_of([], Broken(), newer, ToyMedian(bad_fraction=0.1, n_draws=2)),
        tmp_path,
        diary,
        n_workers=1,
    )
    assert (result.n_measured, result.n_measurements) == (1, 3)
    assert diary.count("not measured") == 2
    assert result.failures[0] == "broken: RuntimeError: no luck"
    assert "update holdfast" in result.failures[1]
    assert path.read_text() == text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_processes_is_a_stop_and_no_failure(
    tmp_path: Path, number: signal.Signals
) -> None:
    """It reaches the workers, too, while they are still importing."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    where = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "runs"), "deaf"],
        env=where,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(
        lambda: bool(
            subprocess.run(
                ["pgrep", "-P", str(process.pid), "-f", "spawn_main"],
                capture_output=True,
                check=False,
            ).stdout
        )
    )
    os.killpg(process.pid, number)
    out, error = process.communicate(timeout=120)
    assert "KeyboardInterrupt" not in error
    assert (process.returncode, out) == (0, "stopped\n")


def test_a_signal_while_a_worker_starts_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    start = SpawnProcess.start

    def start_and_be_stopped(process: SpawnProcess) -> None:
        start(process)
        if len(multiprocessing.active_children()) == 2:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(SpawnProcess, "start", start_and_be_stopped)
    with pytest.raises(KeyboardInterrupt) as stopped:
        Workers(3, 1)
    wait_until(lambda: not multiprocessing.active_children())
    assert stopped.tb  # which holds all frames, so that nothing was closed by chance


def test_a_stop_before_the_first_measurement(tmp_path: Path) -> None:
    result = sweep(
        plan_of(SHORT, ToyMedian(bad_fraction=0.1)),
        tmp_path,
        Diary(),
        n_workers=1,
        stop=lambda: True,
    )
    assert result.was_stopped
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        ("150000 100000", 1),
        ("50000 100000", 1),
        ("100000000 100000", 8),
        ("max 100000", 8),
        ("", 8),
    ],
)
def test_a_container_s_quota_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, expected: int
) -> None:
    path = tmp_path / "cpu.max"
    path.write_text(quota)
    monkeypatch.setattr(_cores, "QUOTA", path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert n_cores() == expected
    path.unlink()
    assert n_cores() == 8


@pytest.mark.parametrize(
    ("n_torch", "n_workers", "expected"), [(8, 2, 4), (3, 2, 3), (1, 1, 1), (8, 16, 1)]
)
def test_threads_are_a_part_of_the_cores_and_no_more_than_torch_has(
    monkeypatch: pytest.MonkeyPatch, n_torch: int, n_workers: int, expected: int
) -> None:
    monkeypatch.setattr(_cores, "n_cores", lambda: 8)
    monkeypatch.setattr(torch, "get_num_threads", lambda: n_torch)
    assert threads_each(n_workers) == expected


def test_workers_share_the_cores(tmp_path: Path) -> None:
    sweep(plan_of(SHORT[:2]), tmp_path, Diary(), n_workers=2)
    for config in SHORT[:2]:
        assert read_record(tmp_path / run_name(config)).run["machine"]["threads"] == threads_each(2)


PROGRAM = """
import signal
import sys
from holdfast.lab.sweep import sweep
from tests.lab.sweep.test_sweep import LONG, Diary, plan_of

if __name__ == "__main__":
    asked = []
    if sys.argv[2:]:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: asked.append(True))
    result = sweep(plan_of(LONG[:2]), sys.argv[1], Diary(), n_workers=2, stop=lambda: bool(asked))
    print("stopped" if result.was_stopped else "done")
    sys.exit(len(result.failures))
"""


@pytest.mark.slow
def test_a_sweep_that_is_killed_leaves_no_process_and_goes_on(tmp_path: Path) -> None:
    script, folder = tmp_path / "program.py", tmp_path / "runs"
    script.write_text(PROGRAM)
    where = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    process = subprocess.Popen(
        [sys.executable, str(script), str(folder)], env=where, start_new_session=True
    )
    places = [folder / run_name(config) for config in LONG[:2]]
    try:
        wait_until(
            lambda: all(
                (place / "metrics.jsonl").exists() and (place / "metrics.jsonl").stat().st_size
                for place in places
            )
        )
    finally:
        process.kill()
        process.wait()
    wait_until(
        lambda: (
            not subprocess.run(
                ["pgrep", "-g", str(process.pid), "-r", "R,S,D"], capture_output=True, check=False
            ).stdout
        )
    )
    result = sweep(plan_of(LONG[:2]), folder, Diary(), n_workers=1)
    assert (result.n_ended, result.failures) == (2, [])
    shutil.rmtree(tmp_path / "alone", ignore_errors=True)
    assert_all_there(folder, LONG[:2], tmp_path)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
