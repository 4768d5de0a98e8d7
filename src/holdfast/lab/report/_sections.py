"""The report before it is written out: one section per study."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import final

from holdfast.lab.records import Study
from holdfast.lab.records.views import AccuracyTable, View
from holdfast.lab.report._accuracy_table import Grid, grid
from holdfast.lab.report._collection import Collection
from holdfast.lab.report._other_runs import other_curves, other_runs, other_table
from holdfast.lab.report._provenance import Provenance, provenance, provenance_of
from holdfast.lab.report.figures import Chart, DataTable, chart

Item = Grid | Chart | DataTable

TAKEN = ("content", "live", "problems", "theme")
"""The page's own ids."""

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


@final
@dataclass(frozen=True, kw_only=True)
class Section:
    """A study, ready to be shown.

    Args:
        slug: its name in addresses and file names, unlike those of the others; what belongs to it adds a dot, which no slug has, and more.
        title: for people.
        about: the setting.
        command: what runs it; may be empty.
        note: how the results read; may be empty.
        items: what there is to see.
        provenance: where it comes from.
    """

    slug: str
    title: str
    about: str
    command: str
    note: str
    items: tuple[Item, ...]
    provenance: Provenance

    def stem(self, item: Item) -> str:
        """The name of an item's files, without their ending."""
        place = next(i for i, other in enumerate(self.items, start=1) if other is item)
        if isinstance(item, Chart):
            return f"{self.slug}.{place}-{item.kind}"
        is_first = next(other for other in self.items if isinstance(other, type(item))) is item
        return self.slug if is_first else f"{self.slug}.{place}"

    def tables(self) -> Iterator[tuple[str, Grid | DataTable]]:
        """All tables that have files, with the names of these, without their ending."""
        for item in self.items:
            if isinstance(item, Chart):
                yield from (
                    (f"{self.stem(item)}-{i}", table)
                    for i, table in enumerate(item.tables, start=1)
                )
            else:
                yield self.stem(item), item


def sections(found: Collection, notes: Mapping[str, str]) -> tuple[Section, ...]:
    """The studies, and the runs that belong to none."""
    slugs = _slugs([study.name for study in found.studies] + ["other-runs"])
    made = [
        _study(study, slug, found, notes.get(study.name, ""))
        for study, slug in zip(found.studies, slugs, strict=False)
    ]
    others = other_runs(found)
    if others:
        made.append(
            Section(
                slug=slugs[-1],
                title="Other runs",
                about="Runs that belong to no study.",
                command="",
                note="",
                items=(other_table(others), chart(other_curves(others), found)),
                provenance=provenance_of(others),
            )
        )
    return tuple(made)


def _study(study: Study, slug: str, found: Collection, note: str) -> Section:
    return Section(
        slug=slug,
        title=study.title,
        about=study.about,
        command=shlex.join(study.command),
        note=note,
        items=tuple(_item(view, found) for view in study.views),
        provenance=provenance(study, found),
    )


def _item(view: View, found: Collection) -> Item:
    """A table or a figure; one that a measurement's values do not fit is told in its place, and the others are made."""
    try:
        return grid(view, found) if isinstance(view, AccuracyTable) else chart(view, found)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        return Chart(
            kind=view.kind,
            title=view.title,
            remarks=(f"This could not be shown ({type(error).__name__}: {error}).",),
        )


def _slugs(names: Iterable[str]) -> list[str]:
    """A name for files and addresses from each name, which a stranger may have chosen; no two are equal, whatever the case of letters."""
    slugs: list[str] = []
    for name in names:
        base = slug = _UNSAFE.sub("-", name).strip("-")[:80] or "study"
        n = 2
        while slug.lower() in (other.lower() for other in (*TAKEN, *slugs)):
            slug, n = f"{base}-{n}", n + 1
        slugs.append(slug)
    return slugs
