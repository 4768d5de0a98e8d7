"""The installed command, as processes: what it prints, how it ends, and what a stop of any kind leaves."""

import json
import random
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from holdfast.lab.cli._summary import resume_command
from tests.lab.cli.commands import (
    SCRIPT,
    SMALL,
    WITH_TINY,
    Running,
    environment,
    finished,
    invoke,
    n_entries,
    started,
    timeless,
)
from tests.lab.data.server import serving, slow
from tests.lab.data.tiny import BIG, GZIPPED

N_STEPS = 80
TRAIN = [
    "train",
    *SMALL,
    "--attack",
    "scaled-flip",
    "--corrupt",
    "0.25",
    "--steps",
    str(N_STEPS),
    "--evaluate-every",
    "60",
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="module")
def runs(place: Path) -> Iterator[dict[str, Running]]:
    """Commands that go on side by side, and the whole run that others are compared with among them."""
    commands: dict[str, list[str]] = {
        "plain": [*TRAIN, "--folder", "whole"],
        "json": ["train", *SMALL, "--steps", "3", "--json", "--folder", "json"],
        "diverged": [
            "train",
            *SMALL,
            "--steps",
            "60",
            "--attack",
            "non-finite",
            "--corrupt",
            "0.75",
            "--folder",
            "diverged",
        ],
        "attack": [
            "attack",
            *SMALL,
            "--rule",
            "mean",
            "--rule",
            "bgmd",
            "--steps",
            "2",
            "--folder",
            "compared",
        ],
        "version": ["--version"],
    }
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(started(place, *command))
            for name, command in commands.items()
        }


@pytest.fixture
def whole(runs: dict[str, Running], place: Path) -> list[Any]:
    """The record of the run that nobody stopped."""
    assert runs["plain"].wait() == 0
    return timeless(place / "whole")


def assert_goes_on(folder: Path, whole: list[Any]) -> None:
    """The run in the folder can be resumed, and its record is as if nothing had happened."""
    result = invoke("resume", str(folder), "--threads", "1", "--quiet")
    assert result.exit_code == 0, result.output
    assert timeless(folder) == whole
    assert sorted(path.name for path in folder.iterdir()) == [
        "checkpoint.pt",
        "metrics.jsonl",
        "run.json",
    ]


def test_a_training_prints_its_plan_and_its_outcome_in_plain_lines(
    runs: dict[str, Running], place: Path
) -> None:
    running = runs["plain"]
    assert running.wait() == 0, running.error
    assert running.error == ""
    assert all(character.isprintable() or character == "\n" for character in running.out)
    lines = dict(line.split(": ", 1) for line in running.out.splitlines() if ": " in line)
    assert lines["model"] == "logistic-regression"
    assert "2 of 8 bad (scaled-flip)" in lines["rows"]
    assert lines["training"].startswith("80 steps (0.21 epochs), sgd(momentum=0.9)")
    assert lines["record"] == "whole"
    assert lines["end"].startswith("finished after 80 steps")
    assert lines["accuracy"].endswith(" %")
    assert any(
        line.startswith("step 60/80, loss ") and "rejected" in line
        for line in running.out.splitlines()
    )


def test_json_is_the_record_line_by_line_and_the_end(runs: dict[str, Running], place: Path) -> None:
    running = runs["json"]
    assert running.wait() == 0, running.error
    *entries, end = [json.loads(line) for line in running.out.splitlines()]
    assert entries == [
        json.loads(line) for line in (place / "json/metrics.jsonl").read_text().splitlines()[:-1]
    ]
    assert (end["end"], end["n_steps"], end["folder"]) == ("finished", 3, "json")
    assert 0 <= end["accuracy"] <= 1


def test_a_run_that_diverged_ends_with_3_and_its_reason_each_time(
    runs: dict[str, Running], place: Path
) -> None:
    running = runs["diverged"]
    assert running.wait() == 3, running.out
    assert "end: diverged. After step" in running.out
    assert "Traceback" not in running.error
    again = invoke("resume", str(place / "diverged"), "--quiet")
    assert again.exit_code == 3
    assert again.output.startswith("diverged. After step")


def test_an_attack_is_shown_as_a_table_and_as_json(runs: dict[str, Running], place: Path) -> None:
    running = runs["attack"]
    assert running.wait() == 0, running.error
    assert "\x1b" not in running.out
    assert "under attack 3 of 8 rows are bad" in running.out
    rows = [line.split() for line in running.out.splitlines()]
    assert {row[0] for row in rows if len(row) > 4 and row[0] in ("mean", "bgmd")} == {
        "mean",
        "bgmd",
    }
    before = {path: path.stat().st_mtime_ns for path in (place / "compared").rglob("metrics.jsonl")}
    arguments = [
        "attack",
        *SMALL,
        "--rule",
        "mean",
        "--rule",
        "bgmd",
        "--steps",
        "2",
        "--folder",
        str(place / "compared"),
    ]
    found = json.loads(invoke(*arguments, "--json").output)
    assert [(one["rule"], one["attacked"]) for one in found] == [
        (r, a) for r in ("mean", "bgmd") for a in (False, True)
    ]
    assert {one["end"] for one in found} == {"finished"}
    assert {
        path: path.stat().st_mtime_ns for path in (place / "compared").rglob("metrics.jsonl")
    } == before
    quiet = invoke(*arguments, "--quiet").output
    assert "clean" in quiet
    assert "finished" not in quiet


def test_the_version_is_told(runs: dict[str, Running]) -> None:
    assert runs["version"].wait() == 0
    assert runs["version"].out.startswith("holdfast ")


def test_the_module_is_the_command(tmp_path: Path) -> None:
    code, out, error = finished(
        tmp_path, "train", "--help", command=[sys.executable, "-m", "holdfast"]
    )
    assert code == 0
    assert "--worker-momentum" in out
    assert error == ""


def test_ctrl_c_stops_soon_and_the_printed_command_goes_on(
    tmp_path: Path, whole: list[Any]
) -> None:
    folder = tmp_path / 'a run\'s "own" $HOME [x] :cat: folder'
    with started(tmp_path, *TRAIN, "--folder", folder.name) as running:
        running.until(lambda: n_entries(folder) >= 10)
        asked = time.monotonic()
        running.send(signal.SIGINT)
        assert running.wait() == 130
        assert time.monotonic() - asked < 10
        assert "Stopping after this step" in running.error
        assert "Traceback" not in running.error
        lines = dict(line.split(": ", 1) for line in running.out.splitlines() if ": " in line)
    assert 10 <= n_entries(folder) < N_STEPS
    command = f"{lines['to go on']} --threads 1"
    assert shlex.split(lines["to go on"]) == ["holdfast", "resume", folder.name]
    shown = subprocess.run(
        ["sh", "-c", command],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Going on after step" in shown.stdout
    assert timeless(folder) == whole


def test_a_folder_that_looks_like_an_option_can_be_resumed(tmp_path: Path) -> None:
    """The command that is printed must not read `-run` as options."""
    assert invoke("train", *SMALL, "-q", "--steps", "1", "--folder=-run").exit_code == 0
    result = invoke(*shlex.split(resume_command(Path("-run")))[1:], "-q")
    assert result.exit_code == 0, result.output


def test_two_signals_stop_at_once_and_another_process_is_kept_out(
    tmp_path: Path, whole: list[Any]
) -> None:
    folder = tmp_path / "run"
    with started(tmp_path, *TRAIN, "--folder", "run", "--checkpoint-seconds", "0") as running:
        running.until(lambda: n_entries(folder) >= 5)
        running.send(signal.SIGSTOP)  # so that two signals are there when it goes on
        other = invoke("resume", str(folder))
        assert other.exit_code == 1
        assert "in use by another process" in other.stderr
        running.send(signal.SIGINT)
        running.send(signal.SIGTERM)  # the same signal again would be one with the first
        running.send(signal.SIGCONT)
        assert running.wait() in (130, 143)
        assert "Stopped." in running.error
        assert "Traceback" not in running.error
    assert_goes_on(folder, whole)


def test_a_request_to_terminate_stops_after_the_step(tmp_path: Path, whole: list[Any]) -> None:
    folder = tmp_path / "run"
    with started(tmp_path, *TRAIN, "--folder", "run", "--quiet") as running:
        running.until(lambda: n_entries(folder) >= 10)
        running.send(signal.SIGTERM)
        assert running.wait() == 143
        assert running.out.startswith("stopped after step ")
        assert "(to go on: holdfast resume run)" in running.out
    assert_goes_on(folder, whole)


def assert_survives_kills(tmp_path: Path, whole: list[Any], moments: list[float]) -> None:
    """Killed at these shares of the way, a run goes on each time as if nothing had happened."""
    folder = tmp_path / "run"
    for share in moments:
        command = (
            ["resume", "run", "--threads", "1"] if folder.exists() else [*TRAIN, "--folder", "run"]
        )
        with started(tmp_path, *command, "--checkpoint-seconds", "0") as running:
            n = int(share * N_STEPS)
            running.until(lambda n=n: n_entries(folder) >= n)  # type: ignore[misc]
            time.sleep(random.Random(share).uniform(0, 0.01))
            running.send(signal.SIGKILL)
            assert running.wait() == -signal.SIGKILL
    for left in folder.glob(".checkpoint*"):
        left.unlink()
    assert_goes_on(folder, whole)


def test_a_killed_run_goes_on(tmp_path: Path, whole: list[Any]) -> None:
    assert_survives_kills(tmp_path, whole, [0.3])


@pytest.mark.slow
def test_a_run_killed_again_and_again_goes_on(tmp_path: Path, whole: list[Any]) -> None:
    assert_survives_kills(tmp_path, whole, [0.0, 0.01, 0.2, 0.4, 0.7])


def limit(n_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))


@pytest.mark.parametrize(
    "n_bytes", [10_000, 20_000], ids=["no room for a checkpoint", "no room for the record"]
)
def test_a_full_disk_is_told_and_the_run_goes_on_once_there_is_room(
    tmp_path: Path, whole: list[Any], n_bytes: int
) -> None:
    pause = "0" if n_bytes == 10_000 else "1000"
    command = [*TRAIN, "--folder", "run", "--checkpoint-seconds", pause]
    code, _, error = finished(tmp_path, *command, preexec_fn=lambda: limit(n_bytes))
    assert_goes_on(tmp_path / "run", whole)
    assert code == 1
    assert error.startswith("Error: ")
    assert "too large" in error
    assert "run" in error  # which file
    assert "Traceback" not in error


def test_a_reader_that_leaves_is_no_failure_worth_a_traceback(tmp_path: Path) -> None:
    command = f"{SCRIPT[0]} {shlex.join(TRAIN)} --evaluate-every 1 --seed 1 | head -1"
    shown = subprocess.run(
        ["sh", "-c", command],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.startswith("data: ")
    assert shown.stdout.count("\n") == 1
    assert shown.stderr == ""


def test_output_that_nobody_wants_does_not_stop_a_training(tmp_path: Path) -> None:
    command = f"{SCRIPT[0]} {shlex.join(['train', *SMALL])} --steps 1 --folder run >&-"
    shown = subprocess.run(
        ["sh", "-c", command],
        cwd=tmp_path,
        env=environment(tmp_path),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "Traceback" not in shown.stderr
    assert shown.returncode == 0


def test_ctrl_c_while_a_training_fetches_its_data_stops_soon(tmp_path: Path) -> None:
    with serving(dict(GZIPPED)) as server:
        server.faults[f"{BIG}.gz"] = [slow(1.0)]  # eleven seconds
        command = ["train", *SMALL, "--data", "tiny"]
        with started(
            tmp_path, *command, command=WITH_TINY, env=environment(tmp_path, TINY_MIRROR=server.url)
        ) as running:
            running.until(lambda: server.sent > 0)
            asked = time.monotonic()
            running.send(signal.SIGINT)
            assert running.wait() == 130
            assert time.monotonic() - asked < 5


def test_huge_rows_are_refused_in_a_sentence(tmp_path: Path) -> None:
    gib = 1 << 30

    def little_memory() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (4 * gib, 4 * gib))

    command = [
        "train",
        "--rows",
        "20000000",
        "--batch",
        "1",
        "--steps",
        "1",
        "--model",
        "logistic-regression",
        "--threads",
        "1",
    ]
    code, _, error = finished(tmp_path, *command, preexec_fn=little_memory)
    assert code in (1, 2)
    assert "Traceback" not in error


def test_completion_scripts_are_shown(tmp_path: Path) -> None:
    shells = {"SHELL": "/bin/bash", "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    with (
        started(
            tmp_path, "--show-completion", "bash", env=environment(tmp_path, **shells)
        ) as first,
        started(
            tmp_path,
            env=environment(
                tmp_path,
                _HOLDFAST_COMPLETE="complete_bash",
                COMP_WORDS="holdfast train --rule bg",
                COMP_CWORD="3",
            ),
        ) as second,
    ):
        assert first.wait() == 0, first.error
        assert "_HOLDFAST_COMPLETE=complete_bash" in first.out
        assert second.wait() == 0, second.error
        assert second.out.split() == ["bgmd", "bgmd-paper", "bgmd-published"]
