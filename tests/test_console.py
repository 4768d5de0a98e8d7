"""The commands of pages run as printed: the exit code and the whole output, except numbers.

A page shows `...` for what it leaves out: any lines if it stands alone, otherwise a part of a line.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.main import get_command

from holdfast.lab.cli._app import app
from tests.lab.cli.commands import finished, start_server

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "docs" / name for name in ("quickstart.md", "cli.md", "reproduce.md")]


@dataclass
class Shown:
    """A command as a page prints it."""

    command: str
    code: int
    lines: list[str]


def shown_on(page: Path) -> list[Shown]:
    found: list[Shown] = []
    for block in re.findall(r"```console\n(.*?)```", page.read_text(), flags=re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                command, _, comment = line.removeprefix("$ ").partition("#")
                found.append(Shown(command.strip(), int(comment.split()[-1]) if comment else 0, []))
            else:
                found[-1].lines.append(line)
    return found


def masked(line: str) -> str:
    """The line without what depends on the machine: numbers, hashes, spaces."""
    line = re.sub(r"-[0-9a-f]{8}\b", "-HASH", line)
    return " ".join(re.sub(r"\d+(,\d{3})*(\.\d+)*", "N", line).split()).replace("N min N s", "N s")


def pattern_of(line: str) -> str:
    if line == "...":
        return r"(.*\n)*"
    return re.escape(masked(line)).replace(re.escape("..."), ".*") + r"\n"


def assert_is_output(shown: list[str], output: str) -> None:
    """The shown lines are the whole output, apart from empty lines and what `...` stands for."""
    lines = [masked(line) for line in output.splitlines()]
    # A slow run prints a line every ten seconds, which no page shows.
    kept = [line for line in lines if line and not re.match(r"step \S+ loss \S+ rejected", line)]
    pattern = "".join(pattern_of(line) for line in shown if line)
    text = "".join(line + "\n" for line in kept)
    assert re.fullmatch(pattern, text), "\n".join(["shown:", *shown, "printed:", output])


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_do_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    found = shown_on(page)
    assert len(found) >= 3
    start_server()
    for shown in found:
        name, *arguments = shlex.split(shown.command)
        assert name == "holdfast"
        code, out, error = finished(tmp_path, *arguments)
        assert code == shown.code, f"{shown.command}: {error}"
        assert_is_output(shown.lines, out + error)


OUTPUT = "loss: 1\naccuracy: 12.0 %\n\nstep 3/9, loss 1.5, rejected 0/8\nrecord:  first\n"


@pytest.mark.parametrize(
    "shown",
    [
        ["loss: 2", "accuracy: 67.5 %", "record: first"],
        ["...", "accuracy: 67.5 %", "record: first"],
        ["loss: 2", "...", "record: ..."],
    ],
)
def test_a_page_may_leave_out_what_it_marks(shown: list[str]) -> None:
    assert_is_output(shown, OUTPUT)


@pytest.mark.parametrize(
    "shown",
    [
        ["loss: 2", "record: first"],
        ["loss: 2", "accuracy: 67.5 %", "record:"],
        ["loss: 2", "acc...first"],  # three lines
        ["...", "record: first", "accuracy: 67.5 %"],
        ["loss: 2", "accuracy: 67.5 %", "record: second"],
        [],
    ],
)
def test_what_a_page_leaves_out_without_a_mark_is_noticed(shown: list[str]) -> None:
    with pytest.raises(AssertionError):
        assert_is_output(shown, OUTPUT)


@pytest.mark.parametrize(("command", "n_options"), [("train", 25), ("reproduce", 8), ("report", 4)])
def test_every_option_is_in_the_reference(command: str, n_options: int) -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    found = get_command(app).commands[command]  # type: ignore[attr-defined]
    options = [
        option for parameter in found.params for option in parameter.opts if option.startswith("--")
    ]
    assert len(options) > n_options
    for option in options:
        if option != "--help":
            assert f"`{option}" in text, option


@pytest.mark.parametrize(
    "command",
    ["train", "resume", "attack", "reproduce", "report", "data list", "data fetch", "list"],
)
def test_every_command_is_in_the_reference(command: str) -> None:
    assert f"`holdfast {command}" in (ROOT / "docs" / "cli.md").read_text()
