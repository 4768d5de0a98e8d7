"""Where results come from."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

from holdfast.lab.records import MeasurementRecord, Study, Summary
from holdfast.lab.report._collection import Collection
from holdfast.lab.report._words import counted


@final
@dataclass(frozen=True, kw_only=True)
class Provenance:
    """What made the results of a study.

    Args:
        facts: a name and what it stands for.
        commands: what was typed, each once.
    """

    facts: tuple[tuple[str, str], ...]
    commands: tuple[str, ...]


def provenance(study: Study, found: Collection) -> Provenance:
    """Of the runs and measurements of a study that are there."""
    wanted = sorted(study.references)
    runs = [found.runs[key] for key in wanted if key in found.runs]
    measurements = [found.measurements[key] for key in wanted if key in found.measurements]
    return _provenance(runs, measurements, len(wanted))


def provenance_of(runs: Sequence[Summary]) -> Provenance:
    """Of runs that belong to no study."""
    return _provenance(runs, [], len(runs))


def _provenance(
    runs: Sequence[Summary], measurements: Sequence[MeasurementRecord], n_wanted: int
) -> Provenance:
    contents = [
        *(run.content for run in runs),
        *(measurement.content for measurement in measurements),
    ]
    seeds = sorted(
        {
            content["config"]["seed"]
            for content in contents
            if isinstance(content["config"].get("seed"), int)
        }
    )
    facts = [
        ("Results", _numbers(runs, measurements, n_wanted)),
        ("Seeds", ", ".join(map(str, seeds))),
        ("Releases", _distinct(_release(content.get("versions")) for content in contents)),
        ("Machine", _distinct(_machine(content.get("machine")) for content in contents)),
    ]
    commands = dict.fromkeys(
        shlex.join(map(str, content["command"]))
        for content in contents
        if isinstance(content.get("command"), list)
    )
    return Provenance(
        facts=tuple((name, text) for name, text in facts if text), commands=tuple(sorted(commands))
    )


def _numbers(
    runs: Sequence[Summary], measurements: Sequence[MeasurementRecord], n_wanted: int
) -> str:
    words = [counted(len(runs), "run")] if runs or not measurements else []
    words += [counted(len(measurements), "measurement")] if measurements else []
    n_there = len(runs) + len(measurements)
    return ", ".join(words) + (f" of {n_wanted:,} in all" if n_there < n_wanted else "")


def _release(versions: Any) -> str:
    return (
        ", ".join(f"{name} {number}" for name, number in versions.items())
        if isinstance(versions, dict)
        else ""
    )


def _machine(machine: Any) -> str:
    if not isinstance(machine, dict):
        return ""
    words = [
        machine.get("processor"),
        machine.get("system"),
        machine.get("architecture"),
        machine.get("device"),
    ]
    cores = (
        [f"{machine['cores']} cores, {machine['threads']} used"]
        if {"cores", "threads"} <= machine.keys()
        else []
    )
    return ", ".join([str(word) for word in words if word] + cores)


def _distinct(texts: Iterable[str]) -> str:
    return "; ".join(sorted({text for text in texts if text}))
