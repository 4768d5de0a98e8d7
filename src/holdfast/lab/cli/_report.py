"""`holdfast report`."""

from collections.abc import Sequence
from pathlib import Path

import typer

from holdfast.checks import failure
from holdfast.lab.cli._errors import note
from holdfast.lab.report import collect, write_compact, write_report


def report(
    places: Sequence[Path],
    output: Path,
    *,
    formats: tuple[str, ...],
    notes: Path | None,
    compact: Path | None,
    quiet: bool,
) -> None:
    """Write the report of all records in these places."""
    found = collect(places)
    texts = _notes(notes)
    if compact is not None:
        write_compact(found, compact)
    page = write_report(found, output, formats=formats, notes=texts)
    names = {study.name for study in found.studies}
    for problem in found.problems:
        note(problem)
    for name in texts:
        if name not in names:
            note(f"{name}.md in {notes} belongs to no study of this report.")
    if not quiet:
        typer.echo(f"{found.overview} The page: {page}")


def _notes(folder: Path | None) -> dict[str, str]:
    if folder is None:
        return {}
    if not folder.is_dir():
        raise failure("--notes", "be a folder", folder)
    return {path.stem: _note(path) for path in sorted(folder.glob("*.md"))}


def _note(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise failure("--notes", "hold texts in UTF-8", f"{path} ({error.reason})") from None
