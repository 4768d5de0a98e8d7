"""`holdfast report`: one page from whatever is there."""

import json
import shutil
from pathlib import Path

import pytest

from holdfast.lab.records import is_record
from tests.lab.cli.commands import assert_refused, finished, invoke


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a measured figure and a trained one."""
    folder = tmp_path_factory.mktemp("made")
    for recipe in ("toy", "tiny-model"):
        assert (
            invoke(
                "reproduce",
                recipe,
                "--size",
                "smoke",
                "--jobs",
                "1",
                "--quiet",
                "--folder",
                str(folder / "runs"),
            ).exit_code
            == 0
        )
    return folder / "runs"


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_two_commands_from_nothing_to_a_page(tmp_path: Path) -> None:
    assert finished(tmp_path, "reproduce", "toy", "--size", "smoke", "--quiet")[0] == 0
    code, out, error = finished(tmp_path, "report")
    assert (code, error) == (0, "")
    assert out == "1 study and 4 measurements. The page: report/index.html\n"
    found = files(tmp_path / "report")
    assert {
        "index.html",
        "report.md",
        "figures/toy-paper-smoke.1-scatter.svg",
        "figures/toy-paper-smoke.1-scatter.pdf",
    } <= set(found)
    assert b"http-equiv" in found["index.html"]


def test_a_compact_file_gives_the_same_report(made: Path, tmp_path: Path) -> None:
    whole = [
        "report",
        str(made),
        "--output",
        "one",
        "--format",
        "svg",
        "--format",
        "pdf",
        "--compact",
        "all.jsonl",
        "--title",
        "my runs",
        "--quiet",
    ]
    assert invoke(*whole).exit_code == 0
    assert (
        invoke(
            "report",
            "all.jsonl",
            "-o",
            "two",
            "--format",
            "svg",
            "--format",
            "pdf",
            "--compact",
            "again.jsonl",
            "--title",
            "my runs",
            "-q",
        ).exit_code
        == 0
    )
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert (tmp_path / "all.jsonl").read_bytes() == (tmp_path / "again.jsonl").read_bytes()
    assert str(made) not in (tmp_path / "one" / "index.html").read_text()
    assert "<h1>my runs</h1>" in (tmp_path / "one" / "index.html").read_text()


def test_readings_stand_beside_their_study(made: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "toy-paper-smoke.md").write_text("The median **holds**.\n")
    assert invoke("report", str(made), "--notes", "notes", "--format", "svg").exit_code == 0
    assert "<strong>holds</strong>" in (tmp_path / "report" / "index.html").read_text()
    assert "The median **holds**." in (tmp_path / "report" / "report.md").read_text()


def test_a_reading_of_no_study_is_told(made: Path, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "toy-paper-smok.md").write_text("Misspelt.\n")
    result = invoke("report", str(made), "--notes", "notes", "--format", "svg")
    assert result.exit_code == 0
    assert "Note: toy-paper-smok.md in notes belongs to no study of this report." in result.stderr


def test_what_cannot_be_read_is_named_and_the_rest_is_made(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "runs")
    runs = sorted(path for path in (tmp_path / "runs").iterdir() if is_record(path))
    lines = (runs[0] / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (runs[0] / "metrics.jsonl").write_bytes(
        b"".join(lines[:2]) + lines[2][:10]
    )  # killed in the middle of a line
    content = json.loads((runs[1] / "run.json").read_text())
    (runs[1] / "run.json").write_text(json.dumps(content | {"version": 99}))
    (runs[2] / "run.json").write_text("{")
    shutil.copytree(runs[3], tmp_path / "runs" / "twice")
    entries = (
        (tmp_path / "runs" / "twice" / "metrics.jsonl").read_text().replace('"loss": ', '"loss": 1')
    )
    (tmp_path / "runs" / "twice" / "metrics.jsonl").write_text(entries)
    (tmp_path / "empty").mkdir()
    result = invoke("report", "runs", "empty", "nowhere", "--format", "svg")
    assert result.exit_code == 0
    notes = result.stderr.splitlines()
    assert len(notes) == 6
    assert all(note.startswith("Note: ") for note in notes)
    for words in (
        f"{runs[0].name} is unfinished, step 2 of 6",
        "version 99",
        f"{runs[2].name} could not be read",
        "two runs of one configuration",
        "empty holds nothing to report",
        "nowhere does not exist",
    ):
        assert words in result.stderr
    page = (tmp_path / "report" / "index.html").read_text()
    assert "6 problems" in page
    assert "Relative residual" in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["`RUNS` must exist, got runs"]),
        (["nowhere"], ["nowhere"]),
        (["empty"], ["empty holds nothing to report"]),
        (["runs", "--format", "gif"], ["`--format` must be one of svg, png, pdf, got 'gif'."]),
        (["empty", "--notes", "nowhere"], ["empty"]),
    ],
)
def test_wrong_use_is_one_sentence(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert_refused(invoke("report", *arguments), *words)
    assert not (tmp_path / "report").exists()


def test_a_reading_that_is_no_text_is_named(made: Path, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "toy-paper-smoke.md").write_bytes(b"\xff\xfe")
    assert_refused(
        invoke("report", str(made), "--notes", "notes"), "`--notes`", "toy-paper-smoke.md"
    )


def test_a_file_of_which_something_would_be_lost_is_not_written_over(
    made: Path, tmp_path: Path
) -> None:
    assert invoke("report", str(made), "--format", "svg", "--compact", "all.jsonl").exit_code == 0
    with (tmp_path / "all.jsonl").open("a") as file:
        file.write('{"format": "holdfast summ')
    before = (tmp_path / "all.jsonl").read_bytes()
    again = invoke("report", "all.jsonl", "--compact", "./all.jsonl", "--output", "again")
    assert_refused(
        again,
        "`--compact` must not be a file that could not be read completely, got all.jsonl",
    )
    assert (tmp_path / "all.jsonl").read_bytes() == before
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("name", ["index.html", "report.md"])
def test_a_page_of_another_origin_is_not_written_over(
    made: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / name).write_text("<!doctype html>\n<h1>My homepage</h1>\n")
    result = invoke("report", str(made), "-o", "site", "--compact", "all.jsonl")
    assert_refused(
        result,
        f"`--output` must be a folder without {name}, or with that of an older report, "
        f"got site/{name}, which is not one; use another folder.",
    )
    assert "My homepage" in (tmp_path / "site" / name).read_text()
    assert [path.name for path in (tmp_path / "site").iterdir()] == [name]
    assert not (tmp_path / "all.jsonl").exists()


def test_an_older_report_is_replaced(made: Path, tmp_path: Path) -> None:
    command = ["report", str(made), "--format", "svg", "-q"]
    assert invoke(*command).exit_code == 0
    page, text = tmp_path / "report" / "index.html", tmp_path / "report" / "report.md"
    content = page.read_text()
    page.write_text('<head><meta name="generator" content="holdfast report"></head>')
    assert invoke(*command).exit_code == 0
    assert page.read_text() == content
    page.unlink()  # as after a stop between the two files
    assert text.exists()
    assert invoke(*command).exit_code == 0
    assert page.read_text() == content


def test_notes_must_be_a_folder(made: Path) -> None:
    assert_refused(
        invoke("report", str(made), "--notes", "nowhere"),
        "`--notes` must be a folder, got nowhere.",
    )


def test_a_folder_that_cannot_be_written_is_told(made: Path, tmp_path: Path) -> None:
    (tmp_path / "report").write_text("a file")
    assert_refused(invoke("report", str(made)), "report", code=1)
