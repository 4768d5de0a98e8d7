"""The report's files."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.checks import failure
from holdfast.lab.records import write_atomically
from holdfast.lab.report._collection import Collection
from holdfast.lab.report._latex import latex_table
from holdfast.lab.report._looks import looks_of
from holdfast.lab.report._markdown import markdown_table
from holdfast.lab.report._markdown_report import markdown_report
from holdfast.lab.report._page import page
from holdfast.lab.report._sections import Section, arrange
from holdfast.lab.report.figures import FORMATS, Chart, export

FIGURES = "figures"
TABLES = "tables"


def write_report(
    found: Collection,
    folder: str | os.PathLike[str],
    formats: Sequence[str] = ("svg", "png", "pdf"),
    sections: Sequence[Section] = (),
    problems: Sequence[str] = (),
) -> Path:
    """Write the page, the same as Markdown, its tables and its figures; returns the page's path.

    The same input gives the same bytes.

    Args:
        found: what was collected.
        folder: where to; it is made if need be, and files of the same names are replaced.
        formats: of the figures' files, of "svg", "png" and "pdf". The first is the one that the Markdown shows, "svg" before others.
        sections: of studies; runs that none of them covers are shown in a section of their own.
        problems: sentences shown together with those of the collection.
    """
    formats = sorted(
        dict.fromkeys(formats), key=lambda name: (name != "svg", list(formats).index(name))
    )
    if not formats or not set(formats) <= set(FORMATS):
        raise failure("formats", f"be some of {', '.join(FORMATS)}", ", ".join(formats) or "none")
    folder = Path(folder)
    for name in (FIGURES, TABLES):
        (folder / name).mkdir(parents=True, exist_ok=True)
    found = replace(found, problems=(*found.problems, *problems))
    made = arrange(sections, found)
    charts = [
        (section, item)
        for section in made
        for item in section.items
        if isinstance(item, Chart) and item.panels
    ]
    looks = looks_of(tuple(chart.labels) for _, chart in charts)
    for section, chart in charts:
        export(chart, looks, folder / FIGURES / section.stem(chart), formats)
    for section in made:
        for stem, table in section.tables():
            _write(folder / TABLES / f"{stem}.md", markdown_table(table))
            _write(folder / TABLES / f"{stem}.tex", latex_table(table))
    _write(folder / "report.md", markdown_report(found, made, f"{FIGURES}/{{}}.{formats[0]}"))
    return _write(folder / "index.html", page(found, made, looks, formats))


def _write(path: Path, text: str) -> Path:
    write_atomically(path, lambda new: new.write_text(text, encoding="utf-8", newline="\n"))
    return path
