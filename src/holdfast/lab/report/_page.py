"""The report as one self-contained HTML page."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from holdfast.lab.report._accuracy_table import EMPTY, EMPTY_WORDS
from holdfast.lab.report._collection import Collection
from holdfast.lab.report._note_markup import note_html
from holdfast.lab.report._sections import Item, Section
from holdfast.lab.report._series_style import COLORS, FIXED, SeriesStyle
from holdfast.lab.report.figures import Chart, Grid
from holdfast.lab.report.figures._inline import inline, sample

PARTS = Path(__file__).parent / "page"
"""Folder of templates, style sheet and script."""

GENERATOR = "holdfast report"


def is_own_page(text: str) -> bool:
    """Whether a page was written by this program."""
    return f'<meta name="generator" content="{GENERATOR}">' in text


def page(
    found: Collection,
    sections: Sequence[Section],
    styles: Mapping[str, SeriesStyle],
    formats: Sequence[str],
    title: str,
) -> str:
    """Render the page; `formats` are those of the figures' files beside it."""
    environment = Environment(
        loader=FileSystemLoader(PARTS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = (PARTS / "page.js").read_text(encoding="utf-8")
    return environment.get_template("page.html.j2").render(
        policy=_policy(script),
        generator=GENERATOR,
        title=title,
        script=script,
        style=(PARTS / "page.css").read_text(encoding="utf-8"),
        colors={name: {"light": light, "dark": dark} for name, (light, dark) in COLORS.items()},
        overview=found.overview,
        problems=found.problems,
        sections=[_section(section, styles, formats) for section in sections],
        formats=formats,
        swatches={label: style.color for label, style in styles.items() if label not in FIXED},
        empty=EMPTY,
        empty_words=EMPTY_WORDS,
    )


def _policy(script: str) -> str:
    """Return a policy that allows the page's own style, this script and embedded images."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _section(
    section: Section, styles: Mapping[str, SeriesStyle], formats: Sequence[str]
) -> dict[str, Any]:
    return {
        "slug": section.slug,
        "title": section.title,
        "verdict": section.verdict,
        "about": section.about,
        "names": section.names,
        "command": section.command,
        "note": note_html(section.note),
        "items": [_item(section, item, styles, formats) for item in section.items],
        "provenance": section.provenance,
    }


def _item(
    section: Section, item: Item, styles: Mapping[str, SeriesStyle], formats: Sequence[str]
) -> dict[str, Any]:
    stem = section.stem(item)
    anchor = f"{stem}.table" if stem == section.slug else stem
    shared = {"id": anchor, "stem": stem}
    if isinstance(item, Grid):
        return shared | {"kind": "grid", "title": item.title, "grid": item, "formats": ()}
    if not isinstance(item, Chart):
        return shared | {"kind": "table", "title": item.caption, "table": item}
    if item.grid is not None:
        return shared | {"kind": "grid", "title": item.title, "grid": item.grid, "formats": formats}
    keys = []
    for label, shape in item.labels.items():
        key = styles[label].key
        drawn = sample(shape, styles[label], f"{anchor}-key-{key}")
        keys.append({"label": label, "key": key, "sample": drawn})
    return shared | {
        "kind": "chart",
        "title": item.title,
        "chart": item,
        "panels": () if item.pictures else inline(item, styles, anchor),
        "keys": keys,
        "tables": [panel.table() for panel in item.panels],
    }
