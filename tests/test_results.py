"""The committed results are what the committed records give."""

from pathlib import Path

import pytest

from holdfast.lab.paper.drawing import sections
from holdfast.lab.report import collect, write_report

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "paper"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report, made anew as `make results` does."""
    folder = tmp_path_factory.mktemp("results")
    found = collect([RESULTS / "records.jsonl"])
    assert not found.problems
    notes = {path.stem: path.read_text() for path in (RESULTS / "notes").glob("*.md")}
    shown, problems = sections(found, notes)
    assert not problems
    title = "The paper's experiments"
    write_report(found, folder, formats=["svg"], sections=shown, title=title)
    return folder


def committed(*endings: str) -> list[str]:
    return [
        str(path.relative_to(RESULTS))
        for path in sorted(RESULTS.rglob("*"))
        if path.suffix in endings and path.parent.name != "notes"
    ]


def assert_equal_bytes(folder: Path, *endings: str) -> None:
    """All files of these endings are there and the same."""
    names = committed(*endings)
    assert names
    assert [
        name for name in names if (folder / name).read_bytes() != (RESULTS / name).read_bytes()
    ] == []


def test_tables_and_texts_are_the_same_byte_for_byte(made: Path) -> None:
    assert_equal_bytes(made, ".md")


def test_figures_and_the_page_are_the_same_byte_for_byte(made: Path) -> None:
    assert_equal_bytes(made, ".svg", ".html")


def test_nothing_else_is_made_or_kept(made: Path) -> None:
    there = {str(path.relative_to(made)) for path in made.rglob("*") if path.is_file()}
    kept = {str(path.relative_to(RESULTS)) for path in RESULTS.rglob("*") if path.is_file()}
    notes = {name for name in kept if name.startswith("notes/")}
    assert there == kept - notes - {"records.jsonl"}


def test_every_reading_has_its_study() -> None:
    names = {study.name for study in collect([RESULTS / "records.jsonl"]).studies}
    assert {path.stem for path in (RESULTS / "notes").iterdir()} <= names


def test_no_path_of_a_machine_is_told() -> None:
    for name in ("records.jsonl", "index.html", "report.md"):
        text = (RESULTS / name).read_text()
        assert "/root" not in text
        assert "/tmp" not in text
        assert "/home" not in text
