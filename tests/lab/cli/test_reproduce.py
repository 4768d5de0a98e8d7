"""`holdfast reproduce`: experiments that can be stopped and resumed at any moment."""

import re
import signal
from pathlib import Path

import pytest
import typer

from holdfast.lab.cli._runs import interrupts
from holdfast.lab.config import config_to_json, run_name
from holdfast.lab.paper import recipes
from holdfast.lab.records import (
    Journal,
    create_record,
    is_record,
    read_measurement,
    read_record,
    read_study,
)
from tests.lab.cli.commands import assert_refused, finished, invoke, started, terminal

SMOKE = ["--size", "smoke"]
SIX_RUNS = ["tiny-model", *SMOKE, "--variant", "published"]


def test_a_measured_figure_is_there_at_once(tmp_path: Path) -> None:
    result = invoke("reproduce", "toy", *SMOKE)
    assert result.exit_code == 0
    assert (
        result.stdout.splitlines()[-1]
        == "4 of 4 measurements exist. For a report: holdfast report runs"
    )
    study = read_study(tmp_path / "runs" / "toy-paper-smoke.study.json")
    assert study.command == ("holdfast", "reproduce", "toy", "--size", "smoke")
    found = [read_measurement(path) for path in (tmp_path / "runs").glob("*.measurement.json")]
    assert sorted(one.config["bad_fraction"] for one in found) == [0.0, 0.1, 0.3, 0.45]
    again = invoke("reproduce", "toy", *SMOKE)
    assert again.stdout.count("known already: toy-median") == 4


def test_a_trained_figure_in_a_process(tmp_path: Path) -> None:
    code, out, error = finished(
        tmp_path, "reproduce", *SIX_RUNS, "--seeds", "2", "--jobs", "2", "--folder", "my runs"
    )
    assert (code, error) == (0, "")
    lines = out.splitlines()
    assert len(lines) == 13
    for i, line in enumerate(lines[:-1], start=1):
        assert re.fullmatch(rf"\[{i}/12\] \S+-seed-[01]-[0-9a-f]{{8}}: \d+\.\d % \(.*\)", line), (
            line
        )
    assert lines[-1] == "12 of 12 runs have ended. For a report: holdfast report 'my runs'"
    records = [read_record(path) for path in (tmp_path / "my runs").iterdir() if is_record(path)]
    assert len(records) == 12
    assert all(record.end is not None and record.end["end"] == "finished" for record in records)
    assert records[0].run["command"][:3] == ["holdfast", "reproduce", "tiny-model"]
    code, out, _ = finished(tmp_path, "reproduce", *SIX_RUNS, "--seeds", "2", "--folder", "my runs")
    assert (code, out.splitlines()) == (0, lines[-1:])


def test_records_from_elsewhere_spare_their_runs(tmp_path: Path) -> None:
    assert invoke("reproduce", *SIX_RUNS, "--jobs", "1", "--folder", "theirs").exit_code == 0
    stopped = next(path for path in sorted((tmp_path / "theirs").iterdir()) if is_record(path))
    lines = (stopped / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (stopped / "metrics.jsonl").write_bytes(b"".join(lines[:-1]))
    assert invoke("report", "theirs", "--format", "svg", "--compact", "theirs.jsonl").exit_code == 0
    result = invoke("reproduce", *SIX_RUNS, "--jobs", "1", "--known", "theirs.jsonl")
    assert result.exit_code == 0
    assert "5 of 6 runs have ended before and are not repeated" in result.stdout
    assert (
        result.stdout.splitlines()[-1]
        == "6 of 6 runs have ended. For a report: holdfast report runs theirs.jsonl"
    )
    assert re.search(r"theirs\.jsonl, line \d is unfinished, step 6 of 6", result.stderr)
    assert [path.name for path in (tmp_path / "runs").iterdir() if is_record(path)] == [
        stopped.name
    ]
    assert invoke("report", "runs", "theirs.jsonl", "--format", "svg").stdout.startswith(
        "1 study and 6 runs."
    )


def test_data_of_runs_that_ended_are_not_wanted(tmp_path: Path) -> None:
    with_mnist = [
        "reproduce",
        "tiny-model",
        "--size",
        "quick",
        "--variant",
        "published",
        "--offline",
        "--folder",
        "runs",
    ]
    plan = recipes["tiny-model"].plan("published", "quick", range(1))
    assert {config.data for config in plan.configs} == {"mnist"}
    assert_refused(invoke(*with_mnist), "mnist is not on this machine", code=4)
    for config in plan.configs:
        create_record(tmp_path / "runs" / run_name(config), config_to_json(config))
        with Journal(tmp_path / "runs" / run_name(config)) as journal:
            journal.append({"end": "finished", "step": 0})
    result = invoke(*with_mnist)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (
        0,
        "6 of 6 runs have ended. For a report: holdfast report runs",
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_second_signal_stops_at_once_with_the_first_one_s_code(
    number: signal.Signals, code: int
) -> None:
    before = signal.getsignal(number)

    def ask_twice() -> None:
        with interrupts() as asked:
            signal.raise_signal(number)
            assert asked
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(typer.Exit) as stopped:
        ask_twice()
    assert stopped.value.exit_code == code
    assert signal.getsignal(number) == before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_stops_when_asked_and_goes_on_when_asked_again(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    command = ["reproduce", *SIX_RUNS, "--jobs", "1"]
    with started(tmp_path, *command) as running:
        running.until(lambda: "[1/6]" in running.out)
        running.send(number)
        assert running.wait() == code
    assert "Stopped; the same command continues." in running.error
    assert "Traceback" not in running.error
    with started(tmp_path, *command) as again:
        assert again.wait() == 0
    assert re.match(r"\d of 6 runs have ended before and are not repeated", again.out)
    assert again.out.splitlines()[-1].startswith("6 of 6 runs have ended.")


def test_failures_are_collected(tmp_path: Path) -> None:
    assert invoke("reproduce", *SIX_RUNS, "--jobs", "1").exit_code == 0
    first, second = [path for path in sorted((tmp_path / "runs").iterdir()) if is_record(path)][:2]
    (first / "metrics.jsonl").write_text("{}\n")
    (second / "metrics.jsonl").write_text("")  # one that was stopped
    (second / "checkpoint.pt").unlink()
    result = invoke("reproduce", *SIX_RUNS, "--jobs", "1")
    assert result.exit_code == 1
    assert f"Failed: {first.name}: `folder` must hold a whole record" in result.stderr
    assert result.stdout.splitlines()[-1].startswith("5 of 6 runs have ended, 1 failed.")


def test_the_board_shows_runs_accuracy_and_the_end(tmp_path: Path) -> None:
    with terminal(tmp_path, "reproduce", *SIX_RUNS, "--jobs", "1", columns=120) as shown:
        assert shown.code() == 0
    assert (
        "Relative residual, accuracy and loss over k: tiny model (published, smoke)" in shown.text
    )
    assert re.search(r"\d of 6 runs", shown.text)
    assert re.search(r"\d/6 +(\d+\.\d %)? +…\S+-seed-0", shown.text)
    assert re.search(r"\d+\.\d %  …\S+-seed-0", shown.text)
    assert shown.text.rstrip().endswith(
        "6 of 6 runs have ended. For a report: holdfast report runs"
    )
    assert shown.raw.rfind(b"\x1b[?25l") < shown.raw.rfind(b"\x1b[?25h")


def test_quiet_says_the_last_line_alone() -> None:
    assert invoke("reproduce", "images", *SMOKE, "--quiet").stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tabel2"], ["`recipe` must be one of table1", "did you mean 'table2'?"]),
        (["toy", "--variant", "published"], ["`--variant` must be paper for toy, got published."]),
        (["toy", "--size", "huge"], ["`--size` must be one of smoke, quick, full, got 'huge'"]),
        (["toy", "--seeds", "0"], ["--seeds"]),
        (
            ["toy", "--seeds", "2"],
            ["`--seeds` must be left out for toy, which trains nothing, got 2."],
        ),
        (["toy", "--jobs", "0"], ["--jobs"]),
        (["toy", "--known", "nowhere.jsonl"], ["`--known` must exist, got 'nowhere.jsonl'."]),
        (["toy", "--device", "moon"], ["`--device` must be one that this machine has"]),
    ],
)
def test_wrong_use_is_one_sentence(arguments: list[str], words: list[str]) -> None:
    assert_refused(invoke("reproduce", *arguments), *words)
    assert not Path("runs").exists()


def test_a_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    assert_refused(invoke("reproduce", "toy", *SMOKE), "runs, which is a file")


def test_more_runs_than_cores_are_made_with_a_warning() -> None:
    result = invoke("reproduce", "toy", *SMOKE, "--jobs", "10000")
    assert result.exit_code == 0
    assert re.search(
        r"Note: 10000 parallel runs on \d+ cores slow each other down\.", result.stderr
    )


def test_recipes_are_listed() -> None:
    listed = invoke("list", "recipes").stdout
    for name in (
        "table1",
        "table2",
        "table3",
        "table4",
        "toy",
        "images",
        "speed-up",
        "choice-of-k",
        "tiny-model",
    ):
        assert re.search(rf"^{name} +paper", listed, re.MULTILINE)
