"""Where found things are put down, and where it is settled which of two is kept."""

from pathlib import Path
from typing import final

from holdfast.lab.records import MeasurementRecord, Study, Summary
from holdfast.lab.report._collection import Collection
from holdfast.lab.report._words import unfinished


@final
class Shelf:
    """What was found so far. Each thing comes with its place, which the sentences name."""

    def __init__(self) -> None:
        self._runs: dict[str, tuple[str, Summary]] = {}
        self._measurements: dict[str, tuple[str, MeasurementRecord]] = {}
        self._studies: dict[str, tuple[str, Study]] = {}
        self.problems: list[str] = []
        self.unread: set[Path] = set()

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all was found."""
        return not (self._runs or self._measurements or self._studies)

    def add_run(self, place: str, run: Summary) -> None:
        """Of two runs of one configuration, the one that ended is kept, else the longer one, else the first; a copy is no second run."""
        held = self._runs.setdefault(run.hash, (place, run))
        if held[1].content == run.content:
            return
        kept, other = (
            (held, (place, run)) if _worth(held[1]) >= _worth(run) else ((place, run), held)
        )
        self._runs[run.hash] = kept
        self.problems.append(
            f"{kept[0]} and {other[0]} hold two runs of one configuration ({run.hash[:8]}); {kept[0].rstrip(',')} is used, {_reason(kept[1], other[1])}."
        )

    def add_measurement(self, place: str, measurement: MeasurementRecord) -> None:
        """Of two measurements of one configuration, the first is kept."""
        held = self._measurements.setdefault(measurement.hash, (place, measurement))
        if held[1].content != measurement.content:
            self.problems.append(
                f"{held[0]} and {place} hold two measurements of one configuration ({measurement.hash[:8]}); {held[0].rstrip(',')} is used, as the first."
            )

    def add_study(self, place: str, study: Study) -> None:
        """Of two studies of one name, the one that has all runs of the other and more is kept: it is the same with more seeds. Else the first."""
        held_place, held = self._studies.setdefault(study.name, (place, study))
        if held == study or held.references > study.references:
            return
        if study.references > held.references:
            self._studies[study.name] = (place, study)
            return
        self.problems.append(
            f"{held_place} and {place} hold two different studies of the name {study.name}; {held_place.rstrip(',')} is used, as the first."
        )

    def collection(self) -> Collection:
        """Everything, in an order that does not depend on where it was found."""
        problems = list(self.problems)
        problems += [
            f"{place} is {unfinished(run)}; it counts in no mean."
            for place, run in self._runs.values()
            if not run.has_ended
        ]
        known = {key for _, study in self._studies.values() for key in study.references}
        problems += [
            f"{place} is a measurement that no study shows."
            for key, (place, _) in self._measurements.items()
            if key not in known
        ]
        return Collection(
            runs={key: self._runs[key][1] for key in sorted(self._runs)},
            measurements={key: self._measurements[key][1] for key in sorted(self._measurements)},
            studies=tuple(
                sorted(
                    (study for _, study in self._studies.values()),
                    key=lambda study: (study.place, study.name),
                )
            ),
            problems=tuple(sorted(problems)),
            unread=frozenset(self.unread),
        )


def _worth(run: Summary) -> tuple[bool, int]:
    return run.has_ended, run.content["n_steps"]


def _reason(kept: Summary, other: Summary) -> str:
    if kept.has_ended != other.has_ended:
        return "because it ended"
    return (
        "as the longer one"
        if kept.content["n_steps"] > other.content["n_steps"]
        else "as the first"
    )
