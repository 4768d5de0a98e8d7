"""Where results come from."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from holdfast.lab.records import MeasurementRecord, Study, Summary
from holdfast.lab.report._collection import Collection
from holdfast.lab.report._formatting import counted


@final
@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where the results of a section come from: named facts, and distinct command lines."""

    facts: tuple[tuple[str, str], ...]
    commands: tuple[str, ...]


def provenance(study: Study, collection: Collection) -> Provenance:
    """Describe the runs and measurements of a study that were found."""
    wanted = sorted(study.references)
    runs = [collection.runs[key] for key in wanted if key in collection.runs]
    measured = [collection.measurements[k] for k in wanted if k in collection.measurements]
    return provenance_of(runs, measured, len(wanted))


def provenance_of(
    runs: Sequence[Summary],
    measurements: Sequence[MeasurementRecord] = (),
    n_wanted: int | None = None,
) -> Provenance:
    """Describe runs and measurements, of which `n_wanted` are expected."""
    documents = [*runs, *measurements]
    seeds = {one.config["seed"] for one in documents if isinstance(one.config.get("seed"), int)}
    facts = [
        ("Results", _counts(len(runs), len(measurements), n_wanted or len(documents))),
        ("Seeds", ", ".join(map(str, sorted(seeds)))),
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
