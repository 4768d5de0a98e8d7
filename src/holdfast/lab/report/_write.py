"""The files of a report."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.checks import failure
from holdfast.lab.records import write_atomically
from holdfast.lab.report._collection import Collection
from holdfast.lab.report._markdown import markdown_report, markdown_table
from holdfast.lab.report._page import page
from holdfast.lab.report._sections import Section, arrange
from holdfast.lab.report._series_style import series_styles
from holdfast.lab.report.figures import Chart
from holdfast.lab.report.figures._export import FORMATS, export

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
        folder: folder of the files, created if necessary; existing files are replaced.
        formats: formats of the figures' files: "svg", "png", "pdf". The Markdown version shows
            "svg", or else the first.
        sections: sections of studies; runs in none of them are shown in a section of their own.
        problems: sentences shown with those of the collection.
        title: title of the page.

    Returns:
        The path of the page.
    """
    given = list(dict.fromkeys(formats))
    if not given or not set(given) <= set(FORMATS):
        raise failure("formats", f"be some of {', '.join(FORMATS)}", ", ".join(given) or "none")
    given = sorted(given, key=lambda name: name != "svg")  # stable: the others keep their order
    folder = Path(folder)
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
    _write(folder / "report.md", markdown_report(found, made, f"{FIGURES}/{{}}.{given[0]}", title))
    return _write(folder / "index.html", page(found, made, styles, given, title))


def _write(path: Path, text: str) -> Path:
    write_atomically(path, lambda new: new.write_text(text, encoding="utf-8", newline="\n"))
    return path
