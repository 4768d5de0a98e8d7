"""`holdfast report`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from holdfast.checks import failure
from holdfast.lab.cli._console import error_console
from holdfast.lab.cli._exit_codes import reports_errors


class FigureFormat(StrEnum):
    """Of a figure's file."""

    SVG = "svg"
    PNG = "png"
    PDF = "pdf"


@reports_errors
def report(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Folders with records, or compact files; `runs` by default.", show_default=False
        ),
    ] = None,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Folder for the page, the tables and the figures."),
    ] = Path("report"),
    formats: Annotated[
        list[FigureFormat] | None,
        typer.Option(
            "--format", help="Of the figures' files; may be repeated.", show_default="svg, png, pdf"
        ),
    ] = None,
    notes: Annotated[
        Path | None,
        typer.Option(
            "--notes", help="Folder with readings: NAME.md is shown with the study of this name."
        ),
    ] = None,
    compact: Annotated[
        Path | None,
        typer.Option(
            "--compact",
            help="Also keep all that the report needs in this file (JSON lines), from which it can be made again.",
        ),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print nothing but what is wrong.")
    ] = False,
) -> None:
    """Make one page of many records: tables beside the paper's, figures, who was believed, where it comes from.

    The page works offline. What cannot be read is named and left out; the rest of the report is still made.
    """
    # Not for every command: it takes a second, and more the first time.
    from holdfast.lab.paper.drawing import sections
    from holdfast.lab.report import collect, write_compact, write_report

    found = collect(runs or [Path("runs")])
    readings = _notes(notes)
    if compact is not None:
        write_compact(found, compact)
    drawn, undrawn = sections(found, readings)
    names = [one.value for one in formats or FigureFormat]
    page = write_report(found, output, formats=names, sections=drawn, problems=undrawn)
    studies = {study.name for study in found.studies}
    strange = [
        f"{name}.md in {notes} belongs to no study of this report."
        for name in readings
        if name not in studies
    ]
    for problem in (*found.problems, *undrawn, *strange):
        error_console().print(f"Note: {problem}", style="yellow", soft_wrap=True)
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
