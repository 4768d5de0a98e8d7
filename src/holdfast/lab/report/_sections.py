"""The report before it is written: one section per study, and one for all other runs."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

from holdfast.lab.records import MeasurementRecord, Study, Summary
from holdfast.lab.report._accuracy_table import grid
from holdfast.lab.report._collection import Collection
from holdfast.lab.report._comparison import compare
from holdfast.lab.report._formatting import counted
from holdfast.lab.report._own_runs import about_runs, run_items
from holdfast.lab.report._run_groups import group_runs, ranges
from holdfast.lab.report.figures import AccuracyTable, Chart, DataTable, Grid, View, chart

Item = Grid | Chart | DataTable

TAKEN = ("content", "live", "problems", "theme")
"""Ids that the page itself uses."""

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


@final
@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where the results of a section come from: named facts, and distinct command lines."""

    facts: tuple[tuple[str, str], ...]
    commands: tuple[str, ...]


@final
@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a report.

    Args:
        slug: name in addresses and file names. `arrange` makes it safe and unique; names of
            what belongs to the section add a dot, which no slug has.
        title: heading.
        verdict: the result in a sentence; may be empty.
        about: the setting.
        names: what short names in its tables and figures stand for, by the name.
        command: command line that runs it; may be empty.
        note: how to read the results; may be empty.
        items: tables and figures.
        provenance: where the results come from.
        runs: hashes of the runs that it covers.
    """

    slug: str
    title: str
    verdict: str = ""
    about: str
    names: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    note: str = ""
    items: tuple[Item, ...]
    provenance: Provenance
    runs: frozenset[str] = frozenset()

    def stem(self, item: Item) -> str:
        """Return the name of an item's files without their suffix."""
        place = next(i for i, other in enumerate(self.items, start=1) if other is item)
        if isinstance(item, Chart):
            return f"{self.slug}.{place}-{item.kind}"
        is_first = next(other for other in self.items if isinstance(other, type(item))) is item
        return self.slug if is_first else f"{self.slug}.{place}"

    def tables(self) -> Iterator[tuple[str, Grid | DataTable]]:
        """Yield all tables that have files, with the names of these without their suffix."""
        for item in self.items:
            if isinstance(item, Chart):
                stem = self.stem(item)
                yield from ((stem, grid) for grid in [item.grid] if grid is not None)
                yield from ((f"{stem}-{i}", table) for i, table in enumerate(item.tables, start=1))
            else:
                yield self.stem(item), item


def study_section(
    study: Study,
    views: Iterable[View],
    collection: Collection,
    note: str = "",
    names: Mapping[str, str] | None = None,
) -> Section:
    """Return the section of a study that shows these views of its runs and measurements.

    Args:
        study: the study.
        views: tables and figures.
        collection: what they show.
        note: how to read the results; Markdown.
        names: what short names stand for, by the name.
    """
    wanted = sorted(study.references)
    runs = [collection.runs[key] for key in wanted if key in collection.runs]
    measured = [collection.measurements[k] for k in wanted if k in collection.measurements]
    return Section(
        slug=study.name,
        title=study.title,
        about=study.about,
        names=dict(names or {}),
        command=shlex.join(study.command),
        note=note,
        items=tuple(_item(view, collection) for view in views),
        provenance=_provenance(runs, measured, len(wanted)),
        runs=frozenset(study.runs),
    )


def arrange(sections: Sequence[Section], collection: Collection) -> tuple[Section, ...]:
    """Return the sections with unique slugs, and one of the runs that none of them covers."""
    covered = frozenset(key for section in sections for key in section.runs)
    others = [run for key, run in collection.runs.items() if key not in covered]
    groups = group_runs(others)
    comparison = compare(groups, collection)
    rest = Section(
        slug="other-runs",
        title="Other runs" if collection.studies else "Runs",
        verdict=comparison.verdict(),
        about=about_runs(groups),
        items=run_items(groups, comparison, collection),
        provenance=_provenance(others),
    )
    parts = [*sections, rest]
    slugs = _slugs([section.slug for section in parts])
    named = [replace(part, slug=slug) for part, slug in zip(parts, slugs, strict=True)]
    return tuple(named if others else named[:-1])


def _item(view: View, collection: Collection) -> Item:
    """Draw a view; where a measurement's values do not fit, a remark takes its place."""
    try:
        if isinstance(view, AccuracyTable):
            return grid(view, collection)
        return chart(view, collection)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        remark = f"This could not be shown ({type(error).__name__}: {error})."
        return Chart(kind=view.kind, title=view.title, remarks=(remark,))


def _slugs(names: Iterable[str]) -> list[str]:
    """Return a safe slug for each name, of which no two are equal when case is ignored."""
    slugs: list[str] = []
    for name in names:
        base = slug = _UNSAFE.sub("-", name).strip("-")[:80] or "study"
        n = 2
        while slug.lower() in (other.lower() for other in (*TAKEN, *slugs)):
            slug, n = f"{base}-{n}", n + 1
        slugs.append(slug)
    return slugs


def _provenance(
    runs: Sequence[Summary],
    measurements: Sequence[MeasurementRecord] = (),
    n_wanted: int | None = None,
) -> Provenance:
    """Describe runs and measurements, of which `n_wanted` are expected."""
    documents = [*runs, *measurements]
    seeds = {one.config["seed"] for one in documents if isinstance(one.config.get("seed"), int)}
    facts = [
        ("Results", _counts(len(runs), len(measurements), n_wanted or len(documents))),
        ("Seed" if len(seeds) == 1 else "Seeds", ranges(seeds)),
        ("Versions", _distinct(_versions(one.versions or {}) for one in documents)),
        ("Machine", _distinct(_machine(one.machine or {}) for one in documents)),
    ]
    commands = {shlex.join(one.command) for one in documents if one.command}
    return Provenance(
        facts=tuple((name, text) for name, text in facts if text), commands=tuple(sorted(commands))
    )


def _counts(n_runs: int, n_measurements: int, n_wanted: int) -> str:
    words = [counted(n_runs, "run")] if n_runs or not n_measurements else []
    words += [counted(n_measurements, "measurement")] if n_measurements else []
    is_partial = n_runs + n_measurements < n_wanted
    return ", ".join(words) + (f" of {n_wanted:,} in total" if is_partial else "")


def _versions(versions: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions.items())


def _machine(machine: Mapping[str, Any]) -> str:
    names = ("processor", "system", "architecture", "device")
    words = [str(machine[name]) for name in names if machine.get(name)]
    if {"cores", "threads"} <= machine.keys():
        words.append(f"{machine['cores']} cores, {machine['threads']} used")
    return ", ".join(words)


def _distinct(texts: Iterable[str]) -> str:
    return "; ".join(sorted({text for text in texts if text}))
