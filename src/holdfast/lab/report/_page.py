"""The report as one page that needs nothing else."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from holdfast.lab.report._accuracy_table import EMPTY, EMPTY_WORDS, Grid
from holdfast.lab.report._collection import Collection
from holdfast.lab.report._colors import COLORS
from holdfast.lab.report._looks import Look
from holdfast.lab.report._prose import paragraphs
from holdfast.lab.report._sections import Item, Section
from holdfast.lab.report.figures import Chart, inline, sample

PARTS = Path(__file__).parent / "page"
"""Template, style sheet and script."""


def page(
    found: Collection,
    sections: Sequence[Section],
    looks: Mapping[str, Look],
    formats: Sequence[str],
) -> str:
    """The page's text; `formats` are those of the figures' files beside it."""
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
        title=sections[0].title if len(sections) == 1 else "Report",
        script=script,
        style=(PARTS / "page.css").read_text(encoding="utf-8"),
        colors={
            name: dict(zip(("light", "dark"), pair, strict=True)) for name, pair in COLORS.items()
        },
        overview=found.overview,
        problems=found.problems,
        sections=[_section(section, looks) for section in sections],
        formats=formats,
        empty=EMPTY,
        empty_words=EMPTY_WORDS,
    )


def _policy(script: str) -> str:
    """What the page may do: use its own style, this very script, and images that are in it."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"


def _section(section: Section, looks: Mapping[str, Look]) -> dict[str, Any]:
    return {
        "slug": section.slug,
        "title": section.title,
        "about": section.about,
        "command": section.command,
        "note": paragraphs(section.note),
        "items": [_item(section, item, looks) for item in section.items],
        "provenance": section.provenance,
    }


def _item(section: Section, item: Item, looks: Mapping[str, Look]) -> dict[str, Any]:
    stem = section.stem(item)
    anchor = f"{stem}.table" if stem == section.slug else stem
    if isinstance(item, Grid):
        return {"kind": "grid", "id": anchor, "stem": stem, "title": item.title, "grid": item}
    if not isinstance(item, Chart):
        return {"kind": "table", "id": anchor, "stem": stem, "title": item.caption, "table": item}
    return {
        "kind": "chart",
        "id": anchor,
        "stem": stem,
        "title": item.title,
        "chart": item,
        "panels": () if item.pictures else inline(item, looks, anchor),
        "keys": [
            {
                "label": label,
                "key": looks[label].key,
                "sample": sample(shape, looks[label], f"{anchor}-key-{looks[label].key}"),
            }
            for label, shape in item.labels.items()
        ],
        "tables": [panel.table() for panel in item.panels],
    }
