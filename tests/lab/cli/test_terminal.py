"""What people see, in terminals of every kind."""

import json
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.lab.records import load_checkpoint, read_record
from tests.lab.cli.commands import SMALL, Terminal, invoke, n_entries, terminal

TRAIN = ["train", *SMALL, "--attack", "scaled-flip", "--corrupt", "0.25"]
SEQUENCE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
COLOUR = re.compile(rb"\x1b\[[0-9;]*3[0-7][0-9;]*m")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("terminals")


@pytest.fixture(scope="module")
def shown(place: Path) -> Iterator[dict[str, Terminal]]:
    """Commands in terminals, each to its end."""
    with ExitStack() as stack:
        steps = ["--steps", "60", "--evaluate-every", "10"]
        compared = ["attack", *SMALL, "--rule", "mean", "--rule", "bgmd", "--steps", "15"]
        terminals = {
            "wide": terminal(place, *TRAIN, *steps, "--folder", "wide", columns=160),
            "narrow": terminal(place, *TRAIN, *steps, "--folder", "narrow", columns=40),
            "dumb": terminal(place, *TRAIN, "--steps", "3", "--folder", "dumb", TERM="dumb"),
            "attack": terminal(place, *compared, "--folder", "compared", NO_COLOR="1"),
            "narrow attack": terminal(place, *compared, "--folder", "compared-narrow", columns=40),
        }
        opened = {name: stack.enter_context(one) for name, one in terminals.items()}
        for one in opened.values():
            one.end()
        yield opened


@pytest.mark.parametrize("name", ["wide", "narrow", "dumb", "attack", "narrow attack"])
def test_every_terminal_sees_a_good_end(shown: dict[str, Terminal], name: str) -> None:
    assert shown[name].process.returncode == 0, shown[name].text
    assert "Traceback" not in shown[name].text


def test_a_training_shows_a_bar_with_all_that_matters_and_then_its_outcome(
    shown: dict[str, Terminal],
) -> None:
    text = shown["wide"].text
    bars = [line for line in text.splitlines() if re.search(r"\d+/60 ", line)]
    assert any(
        re.search(
            r"loss [\d.]+ +accuracy [\d.]+ % +rejected \d/8 +bad rows' weight [\d.]+ % +[\d.]+ steps/s +(\d+:)?\d\d:\d\d",
            bar,
        )
        for bar in bars
    ), bars[-3:]
    last = text[text.rindex("end ") :]
    assert "finished after 60 steps" in last
    assert re.search(r"accuracy +\d+\.\d %", last)
    assert "steps/s" not in last


def test_the_cursor_comes_back(shown: dict[str, Terminal]) -> None:
    for name in ("wide", "narrow", "attack", "narrow attack"):
        hidden, back = shown[name].raw.rfind(b"\x1b[?25l"), shown[name].raw.rfind(b"\x1b[?25h")
        assert hidden < back


def test_colours_are_left_out_where_nobody_wants_them(shown: dict[str, Terminal]) -> None:
    assert COLOUR.search(shown["wide"].raw)
    assert not COLOUR.search(shown["attack"].raw)


def test_a_dumb_terminal_gets_plain_lines(shown: dict[str, Terminal]) -> None:
    assert not SEQUENCE.search(shown["dumb"].raw)
    assert "step 3/3, loss" in shown["dumb"].text


def test_an_attack_shows_its_table_as_it_fills_and_then_once(shown: dict[str, Terminal]) -> None:
    text = shown["attack"].text
    assert "..." in text
    assert "all runs" in text
    last = text[text.rindex("under attack") :]
    rows = {line.split()[0]: line for line in last.splitlines() if line.strip()}
    for rule in ("mean", "bgmd"):
        assert re.search(r"\d+\.\d % +\d+\.\d % +\d+ ms +\d+\.\d %", rows[rule])
    assert "The records are in compared." in last


def test_a_narrow_terminal_keeps_loss_and_accuracy_in_sight(shown: dict[str, Terminal]) -> None:
    assert "accuracy" in shown["narrow"].text
    assert "finished after 60 steps" in " ".join(shown["narrow"].text.split())


def test_ctrl_c_leaves_a_command_that_can_be_copied(tmp_path: Path) -> None:
    """Whatever the width: what is selected with the mouse must be one command, not pieces with blanks between."""
    with terminal(tmp_path, *TRAIN, "--steps", "3000", columns=80) as shown:
        shown.until(lambda: "loss" in shown.text)
        shown.type(b"\x03")
        assert shown.end() == 130
    assert "Stopping after this step; once more to stop at once." in shown.text
    assert "Traceback" not in shown.text
    (run,) = (tmp_path / "runs").iterdir()
    assert f"holdfast resume runs/{run.name}" in shown.text


def test_ctrl_c_twice_gives_the_terminal_back(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    heavy = [
        "train",
        "--model",
        "lenet",
        "--rows",
        "32",
        "--batch",
        "64",
        "--threads",
        "1",
        "--checkpoint-seconds",
        "0",
    ]
    with terminal(tmp_path, *heavy, "--folder", "run") as shown:
        shown.until(lambda: n_entries(folder) >= 2)
        shown.type(b"\x03")
        shown.until(lambda: "Stopping" in shown.text)
        shown.type(b"\x03")
        assert shown.end() == 130
    assert "Traceback" not in shown.text
    assert "Stopped." in shown.text
    assert shown.raw.rfind(b"\x1b[?25l") < shown.raw.rfind(b"\x1b[?25h")
    assert 2 <= read_record(folder).n_steps < 300
    assert load_checkpoint(folder / "checkpoint.pt")["step"] >= 1
    assert "holdfast resume run" in shown.text


def test_ctrl_c_in_a_comparison_says_how_to_go_on(tmp_path: Path) -> None:
    command = ["attack", *SMALL, "--rule", "bgmd", "--steps", "120"]
    with terminal(tmp_path, *command) as shown:
        shown.until(lambda: "loss" in shown.text)
        shown.process.send_signal(signal.SIGINT)
        assert shown.end() == 130
    assert "Stopped; the same command goes on from here." in shown.text
    assert any(read_record(run).end is None for run in (tmp_path / "runs").iterdir())
    again = json.loads(invoke(*command, "--json").output)
    assert [one["end"] for one in again] == ["finished", "finished"]
