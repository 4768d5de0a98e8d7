"""What people see, in terminals of every kind."""

import json
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from holdfast.aggregators import Krum, Mean
from holdfast.lab.cli._attack_table import attack_table
from holdfast.lab.cli._board import Board
from holdfast.lab.cli._defaults import ATTACKS, METHODS
from holdfast.lab.config import Config, parse_threat, run_name
from holdfast.lab.data import Progress
from holdfast.lab.records import load_checkpoint, read_record
from holdfast.lab.sweep import PlannedRun
from holdfast.threats import Adversaries
from tests.lab.cli.commands import SMALL, Terminal, case, invoke, n_entries, terminal

TRAIN = ["train", *SMALL, "--attack", "scaled-flip", "--corrupt", "0.25"]
SEQUENCE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
COLOR = re.compile(rb"\x1b\[[0-9;]*3[0-7][0-9;]*m")
LIVE = ("wide", "narrow", "attack", "narrow attack")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("terminals")


@pytest.fixture(scope="module")
def shown(place: Path) -> Iterator[dict[str, Terminal]]:
    """Commands in terminals, each to its end."""
    with ExitStack() as stack:
        steps = ["--steps", "500", "--evaluate-every", "10"]
        compared = [
            "attack",
            "scaled-flip",
            *SMALL,
            "--rule",
            "mean",
            "--rule",
            "bgmd",
            "--steps",
            "40",
        ]
        terminals = {
            "wide": terminal(place, *TRAIN, *steps, "--folder", "wide", columns=160),
            "narrow": terminal(place, *TRAIN, *steps, "--folder", "narrow", columns=40),
            "dumb": terminal(place, *TRAIN, "--steps", "3", "--folder", "dumb", TERM="dumb"),
            "attack": terminal(place, *compared, "--folder", "compared", NO_COLOR="1"),
            "narrow attack": terminal(place, *compared, "--folder", "compared-narrow", columns=40),
        }
        opened = {name: stack.enter_context(one) for name, one in terminals.items()}
        for one in opened.values():
            one.code()
        yield opened


def test_every_terminal_sees_a_good_end(shown: dict[str, Terminal]) -> None:
    for name, one in shown.items():
        with case(name):
            assert one.code() == 0, one.text
            assert "Traceback" not in one.text


def test_a_training_shows_a_bar_with_all_that_matters_and_then_its_outcome(
    shown: dict[str, Terminal],
) -> None:
    text = shown["wide"].text
    words = r"\d+/500 +loss [\d.]+  accuracy [\d.]+ %  rejected \d/8  bad rows' weight [\d.]+ %"
    assert re.search(words, text), text[-2000:]
    assert re.search(r"[\d.]+ steps/s, \d+ s left", text)
    last = text[text.rindex("end ") :]
    assert "finished after 500 steps" in last
    assert re.search(r"accuracy +\d+\.\d %", last)
    assert "steps/s" not in last


def test_the_cursor_comes_back(shown: dict[str, Terminal]) -> None:
    for name in LIVE:
        with case(name):
            raw = shown[name].raw
            assert raw.rfind(b"\x1b[?25l") < raw.rfind(b"\x1b[?25h")


def test_colors_are_left_out_where_nobody_wants_them(shown: dict[str, Terminal]) -> None:
    assert COLOR.search(shown["wide"].raw)
    assert not COLOR.search(shown["attack"].raw)


def test_a_dumb_terminal_gets_plain_lines(shown: dict[str, Terminal]) -> None:
    assert not SEQUENCE.search(shown["dumb"].raw)
    assert "step 3/3, loss" in shown["dumb"].text


def test_an_attack_shows_its_runs_and_then_a_table(shown: dict[str, Terminal]) -> None:
    text = shown["attack"].text
    assert re.search(r"[1-3] of 4 runs", text)
    assert re.search(r"\d+\.\d %  …mean-scaled-flip-0.4-seed-0", text)
    last = text[text.rindex("under attack") :]
    rows = {line.split()[0]: line for line in last.splitlines() if line.strip()}
    for rule in ("mean", "bgmd"):
        assert re.search(r"\d+\.\d % +\d+\.\d % +\d+ ms", rows[rule])
    assert "The records are in compared." in last


def test_a_narrow_terminal_keeps_loss_and_accuracy_in_sight(shown: dict[str, Terminal]) -> None:
    flat = " ".join(shown["narrow"].text.split())
    assert re.search(r"\d+/500.*accuracy.*finished after 500 steps", flat)


def test_ctrl_c_twice_gives_the_terminal_back(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    heavy = ["--model", "lenet", "--rows", "32", "--batch", "64", "--threads", "1"]
    command = ["train", *heavy, "--checkpoint-seconds", "0", "--folder", "run"]
    with terminal(tmp_path, *command) as shown:
        shown.until(lambda: n_entries(folder) >= 2)
        shown.type(b"\x03")
        shown.until(lambda: "Stopping" in shown.text)
        shown.type(b"\x03")
        assert shown.code() == 130
    assert "Traceback" not in shown.text
    assert "Stopped. To resume: holdfast resume run" in shown.text
    assert shown.raw.rfind(b"\x1b[?25l") < shown.raw.rfind(b"\x1b[?25h")
    assert 2 <= read_record(folder).n_steps < 300
    (checkpoint,) = folder.glob("checkpoint.*")
    assert load_checkpoint(checkpoint)["step"] >= 1


def test_ctrl_c_in_a_comparison_tells_how_to_continue(tmp_path: Path) -> None:
    command = ["attack", "scaled-flip", *SMALL, "--rule", "bgmd", "--steps", "600"]
    with terminal(tmp_path, *command) as shown:
        shown.until(lambda: bool(re.search(r" [1-9]\d*/600 ", shown.text)))
        shown.send(signal.SIGINT)
        assert shown.code() == 130
    assert "Stopped; the same command continues." in shown.text
    assert any(read_record(run).end is None for run in (tmp_path / "runs").iterdir())
    again = json.loads(invoke(*command, "--json").output)
    assert [one["end"] for one in again] == ["finished", "finished"]


@pytest.fixture
def run() -> PlannedRun:
    config = Config(n_steps=6)
    return PlannedRun(config, Path(run_name(config)))


def drawn(board: Board, console: Console) -> str:
    board.close()
    console.print(board.render())
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_on_a_narrow_board_names_are_cut_before_figures(run: PlannedRun) -> None:
    console = Console(file=StringIO(), width=60)
    board = Board(console, "A sweep")
    board.planned([run])
    board.began(run)
    board.stepped(run, {"step": 3, "loss": 1.0, "accuracy": 0.345})
    assert re.search(r"3/6   34\.5 %  fashion-mnist-slice\S*…", drawn(board, console))


def test_what_all_names_begin_with_does_not_hide_how_they_end() -> None:
    threat = parse_threat("little-is-enough", Adversaries(bad_fraction=0.4))
    configs = [Config(n_steps=400, rule=rule, threat=threat) for rule in (Krum(n_bad=8), Mean())]
    runs = [PlannedRun(config, Path(run_name(config))) for config in configs]
    console = Console(file=StringIO(), width=80)
    board = Board(console, "A sweep")
    board.planned(runs)
    for run in runs:
        board.began(run)
        board.stepped(run, {"step": 400, "loss": 1.0, "accuracy": 0.345})
    text = drawn(board, console)
    assert "34.5 %  …krum-n_bad-8-little-is-enough-0.4" in text
    assert "34.5 %  …mean-little-is-enough-0.4" in text


@pytest.mark.parametrize(
    ("width", "left_out"),
    [
        (160, []),
        (83, []),
        (80, ["time per step"]),
        (70, ["bytes per worker", "time per step"]),
        (40, ["bytes per worker", "time per step"]),
    ],
)
def test_the_table_of_an_attack_keeps_names_whole(width: int, left_out: list[str]) -> None:
    """The table of `make run`; only where names do not fit at all are they folded."""
    console = Console(file=StringIO(), width=width)
    records: dict[tuple[str, str | None], Any] = {
        (method, attack): SimpleNamespace(
            accuracy=0.842,
            end={"end": "diverged" if attack == "huddle" else "finished"},
            bytes_per_round=407080.0,
            entries=[{}],
            seconds_per_step=lambda: {"gradient": 0.015},
        )
        for method in METHODS
        for attack in (None, *ATTACKS)
    }
    table, found = attack_table(METHODS, ATTACKS, records, console)
    assert found == left_out
    console.print(table)
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for name in (*METHODS, *ATTACKS, "84.2 %", "diverged"):
        assert (name in text) or width == 40
    assert ("407,080" in text) == ("bytes per worker" not in left_out)
    assert ("15 ms" in text) == ("time per step" not in left_out)


def test_a_board_shows_failures_measurements_and_downloads(run: PlannedRun) -> None:
    console = Console(file=StringIO(), width=100)
    board = Board(console, "A sweep")
    board.measured("toy", is_new=True)
    board.fetching(Progress("images.gz", 2_500_000, 5_000_000, "example.org"))
    assert "2.5 MB  images.gz from example.org" in drawn(board, console)
    board.planned([run])
    board.began(run)
    board.failed(run, "No room.")
    text = drawn(board, console)
    assert "1 measurement, 1 of 1 runs, 1 failed" in text
    assert "failed: No room.  fashion-mnist-slice" in text
