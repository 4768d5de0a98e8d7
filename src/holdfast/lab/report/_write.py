"""The files of a report."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.checks import failure
from holdfast.lab.records import write_atomically
from holdfast.lab.report._collection import Collection
from holdfast.lab.report._markdown import PROVENANCE, markdown_report, markdown_table
from holdfast.lab.report._page import is_own_page, page
from holdfast.lab.report._sections import Section, arrange
from holdfast.lab.report._series_style import series_styles
from holdfast.lab.report.figures import Chart
from holdfast.lab.report.figures._export import FORMATS, export

PAGE = "index.html"
TEXT = "report.md"
FIGURES = "figures"
TABLES = "tables"


def write_report(
    found: Collection,
    folder: str | os.PathLike[str],
    formats: Sequence[str] = ("svg", "png", "pdf"),
    sections: Sequence[Section] = (),
    problems: Sequence[str] = (),
    title: str = "Report",
) -> Path:
    """Write the page, a Markdown version, the tables and the figures.

    The same input gives the same bytes.

    Args:
        found: the collected runs and measurements.
        folder: folder of the files, created if necessary; those of an older report are replaced.
        formats: formats of the figures' files: "svg", "png", "pdf". The Markdown version shows
            "svg", or else the first.
        sections: sections of studies; runs in none of them are shown in a section of their own.
        problems: sentences shown with those of the collection.
        title: title of the page.

    Returns:
        The path of the page.

    Raises:
        ValueError: if the folder holds a page or a text that this function did not write.
    """
    given = list(dict.fromkeys(formats))
    if not given or not set(given) <= set(FORMATS):
        raise failure("formats", f"be some of {', '.join(FORMATS)}", ", ".join(given) or "none")
    given = sorted(given, key=lambda name: name != "svg")  # stable: the others keep their order
    folder = Path(folder)
    check_report_folder(folder)
    for name in (FIGURES, TABLES):
        (folder / name).mkdir(parents=True, exist_ok=True)
    found = replace(found, problems=(*found.problems, *problems))
    made = arrange(sections, found)
    items = [(section.stem(item), item) for section in made for item in section.items]
    charts = [(stem, item) for stem, item in items if isinstance(item, Chart) and item.panels]
    styles = series_styles(tuple(chart.labels) for _, chart in charts)
    for stem, chart in charts:
        export(chart, styles, folder / FIGURES / stem, given)
    for stem, table in (named for section in made for named in section.tables()):
        _write(folder / TABLES / f"{stem}.md", markdown_table(table))
    _write(folder / TEXT, markdown_report(found, made, f"{FIGURES}/{{}}.{given[0]}", title))
    return _write(folder / PAGE, page(found, made, styles, given, title))


def check_report_folder(folder: Path, name: str = "folder") -> None:
    """Refuse a folder with a page or a text that is not a report; messages call it `name`."""
    there = next((folder / file for file in (PAGE, TEXT) if (folder / file).is_file()), None)
    if there is None:
        return
    content = there.read_text(encoding="utf-8", errors="replace")
    is_own = is_own_page(content) if there.name == PAGE else PROVENANCE in content
    if not is_own:
        requirement = f"be a folder without {there.name}, or with that of an older report"
        raise failure(name, requirement, f"{there}, which is not one; use another folder")


def _write(path: Path, text: str) -> Path:
    write_atomically(path, lambda new: new.write_text(text, encoding="utf-8", newline="\n"))
    return path
