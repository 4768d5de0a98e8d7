"""Commands in their own processes: what they print, how they end, and what a stop leaves."""

import json
import os
import random
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

from holdfast import __version__
from holdfast.lab.cli._summary import resume_command
from tests.lab.cli.commands import (
    SMALL,
    Running,
    environment,
    finished,
    installed_in_terminal,
    invoke,
    n_entries,
    started,
    timeless,
)
from tests.lab.data.server import serving, slow
from tests.lab.data.tiny import BIG, GZIPPED

N_STEPS = 600
BAD = ["--attack", "scaled-flip", "--corrupt", "0.25"]
STEP = ["--rule", "bgmd"]  # which carries something from step to step
TRAIN = ["train", *SMALL, *STEP, *BAD, "--steps", str(N_STEPS), "--evaluate-every", "60"]
COMPARE = ["attack", "scaled-flip", *SMALL, "--rule", "mean", "--rule", "bgmd", "--steps", "2"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="module")
def runs(place: Path) -> Iterator[dict[str, Running]]:
    """Commands that run at the same time; the run that others are compared with is among them."""
    hopeless = ["--attack", "non-finite", "--corrupt", "0.75", "--steps", "60"]
    commands = {
        "plain": [*TRAIN, "--folder", "whole"],
        "json": ["train", *SMALL, "--steps", "3", "--json", "--folder", "json"],
        "diverged": ["train", *SMALL, *hopeless, "--folder", "diverged"],
        "attack": [*COMPARE, "--folder", "compared"],
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


def assert_resumes(folder: Path, whole: list[Any]) -> None:
    """The run in the folder can be resumed, and its record is that of a run without a stop."""
    result = invoke("resume", str(folder), "--threads", "1", "--quiet")
    assert result.exit_code == 0, result.output
    assert timeless(folder) == whole


def labeled(text: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)


def test_a_training_prints_its_plan_and_its_outcome_in_plain_lines(
    runs: dict[str, Running],
) -> None:
    running = runs["plain"]
    assert running.wait() == 0, running.error
    assert running.error == ""
    assert all(character.isprintable() or character == "\n" for character in running.out)
    lines = labeled(running.out)
    assert lines["model"] == "logistic-regression"
    assert "2 of 8 bad (scaled-flip)" in lines["rows"]
    assert lines["training"].startswith(f"{N_STEPS} steps (1.6 epochs), sgd(momentum=0.9)")
    assert lines["record"] == "whole"
    assert lines["end"].startswith(f"finished after {N_STEPS} steps")
    assert lines["accuracy"].endswith(" %")
    assert "gradient" in lines["time per step"]
    begin = f"step 60/{N_STEPS}, loss "
    (step,) = [line for line in running.out.splitlines() if line.startswith(begin)]
    assert "rejected" in step


def test_json_is_the_record_line_by_line_and_the_end(runs: dict[str, Running], place: Path) -> None:
    running = runs["json"]
    assert running.wait() == 0, running.error
    *entries, end = [json.loads(line) for line in running.out.splitlines()]
    record = (place / "json/metrics.jsonl").read_text().splitlines()
    assert entries == [json.loads(line) for line in record[:-1]]
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
    assert "time per step" in running.out
    rows = [line.split() for line in running.out.splitlines()]
    assert [row[0] for row in rows if len(row) > 5 and row[2] == "%"] == ["mean", "bgmd"]
    assert "bytes" not in running.out
    found = {path: path.stat().st_mtime_ns for path in (place / "compared").rglob("metrics.jsonl")}
    command = [*COMPARE, "--folder", str(place / "compared")]
    results = json.loads(invoke(*command, "--json").output)
    assert [(one["rule"], one["attack"]) for one in results] == [
        (rule, attack) for rule in ("mean", "bgmd") for attack in (None, "scaled-flip")
    ]
    assert {one["end"] for one in results} == {"finished"}
    assert {path: path.stat().st_mtime_ns for path in found} == found
    quiet = invoke(*command, "--quiet").output
    assert "clean" in quiet
    assert "records" not in quiet


def test_workers_are_compared_by_accuracy_and_bytes() -> None:
    """What `make run` shows, with a small model and few steps."""
    small = ["--model", "logistic-regression", "--workers", "6", "--batch", "2", "--threads", "1"]
    length = ["--steps", "2", "--average", "0.5"]
    command = ["attack", *small, *length, "--corrupt", "0.3", "--folder", "workers"]
    shown = invoke(*command).output
    assert (
        "2 steps of 6 workers; under attack 2 of 6 workers are bad; "
        "tested: mean of the parameters over some 2 steps"
    ) in shown
    assert "exchange is BGMD with worker memory" in shown
    found = json.loads(invoke(*command, "--json").output)
    methods = ("mean", "geometric-median", "radius-filter", "exchange")
    attacks = (None, "scaled-flip", "little-is-enough", "huddle")
    keys = [(one["rule"], one["attack"]) for one in found]
    assert keys == [(method, attack) for method in methods for attack in attacks]
    whole = 4 * 7850
    for one in found:
        if one["rule"] == "exchange":  # two of 124 tiles, one of which may be narrower
            assert 256 < one["bytes_per_round"] - 2 * 124 <= 512
        else:
            assert one["bytes_per_round"] == whole
    rows = [line.split() for line in shown.splitlines()]
    assert [row[0] for row in rows if "ms" in row] == list(methods)


def test_the_version_is_shown(runs: dict[str, Running]) -> None:
    import torch

    assert runs["version"].wait() == 0
    python = ".".join(map(str, sys.version_info[:3]))
    assert (
        runs["version"].out
        == f"holdfast {__version__}, torch {torch.__version__}, Python {python}\n"
    )


def test_the_module_is_the_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "train", "--help"],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--worker-momentum" in done.stdout
    assert done.stderr == ""


def test_ctrl_c_stops_the_installed_command_and_the_printed_one_resumes(
    tmp_path: Path, whole: list[Any]
) -> None:
    """Real starts; in a terminal, Ctrl-C reaches all processes of a command."""
    folder = tmp_path / 'a run\'s "own" $HOME [x] :cat: folder'
    with installed_in_terminal(tmp_path, *TRAIN, "--folder", folder.name, columns=40) as shown:
        shown.until(lambda: n_entries(folder) >= 10)
        asked = time.monotonic()
        shown.type(b"\x03")
        assert shown.code() == 130
        assert time.monotonic() - asked < 10
    assert "Stopping after this step" in shown.text
    assert "Traceback" not in shown.text
    assert 10 <= n_entries(folder) < N_STEPS
    # However narrow the terminal, the command can be copied from it as one piece.
    (printed,) = [line for line in shown.text.splitlines() if line.startswith("to resume")]
    command = printed.removeprefix("to resume").strip()
    assert shlex.split(command) == ["holdfast", "resume", folder.name]
    done = subprocess.run(
        ["sh", "-c", f"{command} --threads 1"],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Resuming after step" in done.stdout
    assert timeless(folder) == whole


def test_a_folder_that_looks_like_an_option_can_be_resumed() -> None:
    """The printed command must not read `-run` as options."""
    assert invoke("train", *SMALL, "-q", "--steps", "1", "--folder=-run").exit_code == 0
    result = invoke(*shlex.split(resume_command(Path("-run")))[1:], "-q")
    assert result.exit_code == 0, result.output


def test_two_signals_stop_at_once_and_another_process_is_kept_out(
    tmp_path: Path, whole: list[Any]
) -> None:
    folder = tmp_path / "run"
    with started(tmp_path, *TRAIN, "--folder", "run", "--checkpoint-seconds", "0") as running:
        running.until(lambda: n_entries(folder) >= 5)
        running.send(signal.SIGSTOP)  # so that two signals are there when it continues
        other = invoke("resume", str(folder))
        assert other.exit_code == 1
        assert "in use by another process" in other.stderr
        running.send(signal.SIGINT)
        running.send(signal.SIGTERM)  # the same signal again would be merged with the first
        running.send(signal.SIGCONT)
        assert running.wait() in (130, 143)
        assert "Stopped. To resume: holdfast resume run" in running.error
        assert "Traceback" not in running.error
    assert_resumes(folder, whole)


def test_a_run_stopped_before_its_first_checkpoint_begins_again(
    tmp_path: Path, whole: list[Any]
) -> None:
    command = [*TRAIN, "--folder", "run"]
    with started(tmp_path, *command) as running:
        running.until(lambda: n_entries(tmp_path / "run") >= 5)
        running.send(signal.SIGSTOP)
        running.send(signal.SIGINT)
        running.send(signal.SIGTERM)
        running.send(signal.SIGCONT)
        assert running.wait() in (130, 143)
        last = "Stopped. There is no checkpoint yet: the same command begins again."
        assert running.error.splitlines()[-1] == last
    result = invoke(*command[:-1], str(tmp_path / "run"))
    assert result.exit_code == 0
    assert "Resuming" not in result.output
    assert timeless(tmp_path / "run") == whole


def test_a_request_to_terminate_stops_after_the_step(tmp_path: Path, whole: list[Any]) -> None:
    folder = tmp_path / "run"
    with started(tmp_path, *TRAIN, "--folder", "run", "--quiet") as running:
        running.until(lambda: n_entries(folder) >= 10)
        running.send(signal.SIGTERM)
        assert running.wait() == 143
        assert running.out.startswith("stopped after step ")
        assert "(to resume: holdfast resume run)" in running.out
    assert_resumes(folder, whole)


def test_json_after_a_stop_continues_where_it_ended(tmp_path: Path, whole: list[Any]) -> None:
    folder = tmp_path / "run"
    with started(tmp_path, *TRAIN, "--folder", "run", "--json") as running:
        running.until(lambda: n_entries(folder) >= 10)
        running.send(signal.SIGINT)
        assert running.wait() == 130
        *first, end = map(json.loads, running.out.splitlines())
    assert end["end"] == "stopped"
    result = invoke("resume", "run", "--threads", "1", "--json")
    *second, end = map(json.loads, result.stdout.splitlines())
    assert end["end"] == "finished"
    assert [entry["step"] for entry in [*first, *second]] == list(range(1, N_STEPS + 1))
    assert timeless(folder) == whole


def test_a_command_killed_at_a_random_moment_leaves_a_run_that_resumes(
    tmp_path: Path, whole: list[Any]
) -> None:
    folder = tmp_path / "run"
    with started(tmp_path, *TRAIN, "--folder", "run", "--checkpoint-seconds", "0") as running:
        running.until(lambda: n_entries(folder) >= 20)
        time.sleep(random.Random(0).uniform(0, 0.01))
        running.send(signal.SIGKILL)
        assert running.wait() == -signal.SIGKILL
    deadline = time.monotonic() + 30
    while invoke("resume", "run", "--quiet", "--threads", "1").exit_code == 1:
        assert time.monotonic() < deadline  # the run's process notices the death, and stops
    assert timeless(folder) == whole


def test_a_reader_that_leaves_is_no_failure_worth_a_traceback(tmp_path: Path) -> None:
    """As in `holdfast train | head -1`."""
    os.mkfifo(tmp_path / "pipe")
    command = [*TRAIN, "--evaluate-every", "1", "--seed", "1"]
    with started(tmp_path, *command, output=str(tmp_path / "pipe")) as running:
        with (tmp_path / "pipe").open() as reader:
            assert reader.readline().startswith("data: ")
        running.process.join(60)
        assert running.error == ""
        assert running.process.exitcode == 1


def test_a_closed_output_does_not_stop_a_training(tmp_path: Path) -> None:
    """As in `holdfast train >&-`."""
    command = ["train", *SMALL, "--steps", "1", "--folder", "run"]
    with started(tmp_path, *command, output=None) as running:
        running.process.join(60)
        assert running.process.exitcode == 0
        assert "Traceback" not in running.error
    assert timeless(tmp_path / "run")[-1]["end"] == "finished"


def test_ctrl_c_while_a_training_fetches_its_data_stops_soon(tmp_path: Path) -> None:
    with serving(dict(GZIPPED)) as server:
        server.faults[f"{BIG}.gz"] = [slow(1.0)]  # eleven seconds
        command = ["train", *SMALL, "--data", "tiny"]
        with started(tmp_path, *command, mirror=server.url) as running:
            running.until(lambda: server.sent > 0)
            asked = time.monotonic()
            running.send(signal.SIGINT)
            assert running.wait() == 130
            assert time.monotonic() - asked < 5


def test_a_missing_data_set_is_reported_without_control_characters(tmp_path: Path) -> None:
    code, _, error = finished(tmp_path, "train", *SMALL, "--data", "mnist", "--offline")
    assert code == 4
    assert "holdfast data fetch mnist" in error
    assert "\x1b" not in error
    assert not (tmp_path / "runs").exists()
