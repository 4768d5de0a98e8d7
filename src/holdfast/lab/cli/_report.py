"""`holdfast report`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from holdfast.checks import failure
from holdfast.lab.cli._errors import note
from holdfast.lab.cli._options import FigureFormat
from holdfast.lab.paper.drawing import sections
from holdfast.lab.report import check_report_folder, collect, write_compact, write_report


def report(given: Mapping[str, Any]) -> None:
    """Write the report of all records in the given places."""
    places = given["runs"] or [Path("runs")]
    found = collect(places)
    notes = _notes(given["notes"])
    check_report_folder(given["output"], "--output")
    if given["compact"] is not None:
        write_compact(found, given["compact"])
    drawn, undrawn = sections(found, notes)
    formats = [one.value for one in given["formats"] or FigureFormat]
    title = given["title"] or ", ".join(_name(path.resolve()) for path in places)
    page = write_report(
        found, given["output"], formats, sections=drawn, problems=undrawn, title=title
    )
    for problem in (*found.problems, *undrawn):
        note(problem)
    for name in sorted(notes.keys() - {study.name for study in found.studies}):
        note(f"{name}.md in {given['notes']} belongs to no study of this report.")
    if not given["quiet"]:
        typer.echo(f"{found.overview} The page: {page}")


def _name(path: Path) -> str:
    return path.stem if path.is_file() else path.name


def _notes(folder: Path | None) -> dict[str, str]:
    if folder is None:
        return {}
    if not folder.is_dir():
        raise failure("--notes", "be a folder", folder)
    notes = {}
    for path in sorted(folder.glob("*.md")):
        try:
            notes[path.stem] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise failure("--notes", "hold texts in UTF-8", f"{path} ({error.reason})") from None
    return notes
