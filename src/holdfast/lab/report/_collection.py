"""Collecting runs, studies and measurements from folders and compact files."""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from holdfast.checks import failure
from holdfast.lab.records import (
    MEASUREMENT_SUFFIX,
    METRICS_FILE,
    RUN_FILE,
    STUDY_SUFFIX,
    MeasurementRecord,
    Study,
    Summary,
    parse_json,
    read_measurement,
    read_record,
    read_study,
    write_atomically,
)
from holdfast.lab.report._formatting import counted, listed, unfinished

COMPACT_SUFFIX = ".jsonl"

FORMATS: Mapping[str, type[Study] | type[MeasurementRecord] | type[Summary]] = {
    "holdfast study": Study,
    "holdfast measurement": MeasurementRecord,
    "holdfast summary": Summary,
}
"""Formats of the lines of a compact file."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Collection:
    """The input of a report.

    Args:
        runs: summaries by the hash of their configuration.
        measurements: measurements by the hash of their configuration.
        studies: studies, ordered by place and name; names are unique.
        problems: one sentence for each thing that could not be read or that was left out.
        unread: real paths of files and folders that could not be read completely.
    """

    runs: Mapping[str, Summary]
    measurements: Mapping[str, MeasurementRecord]
    studies: tuple[Study, ...]
    problems: tuple[str, ...] = ()
    unread: frozenset[Path] = frozenset()

    @property
    def overview(self) -> str:
        """How much there is, as a sentence."""
        counts = [
            (len(self.studies), "study", "studies"),
            (len(self.runs), "run", "runs"),
            (len(self.measurements), "measurement", "measurements"),
        ]
        return f"{listed([counted(*count) for count in counts if count[0]])}."


def collect(paths: Iterable[str | os.PathLike[str]]) -> Collection:
    """Read everything in these files and, recursively, in these folders.

    What cannot be read is reported in `problems` and skipped.

    Args:
        paths: folders, and `run.json`, study, measurement and compact files, in any order.

    Raises:
        FileNotFoundError: if none of the paths exists.
        ValueError: if nothing was found.
    """
    given = sorted({Path(path) for path in paths})
    missing = [path for path in given if not path.exists()]
    if given and missing == given:
        raise FileNotFoundError(f"`paths` must exist, got {', '.join(map(str, given))}.")
    collector = RecordCollector()
    collector.problems += [f"{path} does not exist." for path in missing]
    present = [path for path in given if path not in missing]
    places = {place.resolve(): place for path in present for place in collector.find(path)}
    for place in sorted(places.values()):
        collector.read(place, is_expected=place in given)
    found = collector.collection()
    if not (found.runs or found.measurements or found.studies):
        reasons = [f"({problem})" for problem in found.problems]
        requirement = "hold a run, a study, a measurement or a compact file"
        got = " ".join([", ".join(map(str, given)) or "none", *reasons])
        raise failure("paths", requirement, got)
    return found


def write_compact(found: Collection, compact: str | os.PathLike[str]) -> Path:
    """Write everything that a report needs into one file of JSON lines.

    The same input gives the same bytes. Keys keep their order: results are shown in it.

    Returns:
        The path of the file, which :func:`collect` reads.

    Raises:
        ValueError: if the file was not read completely: what was not read would be lost.
    """
    path = Path(compact)
    if path.resolve() in found.unread:
        raise failure("compact", "not be a file that could not be read completely", path)
    documents: list[Study | MeasurementRecord | Summary] = [*found.studies]
    documents += [found.measurements[key] for key in sorted(found.measurements)]
    documents += [found.runs[key] for key in sorted(found.runs)]
    lines = [json.dumps(one.to_json(), separators=(",", ":")) + "\n" for one in documents]
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(lines)
    write_atomically(path, lambda new: new.write_text(text, encoding="utf-8", newline="\n"))
    return path


@final
class RecordCollector:
    """Collects documents with their places, and decides which of two duplicates is kept."""

    def __init__(self) -> None:
        self._runs: dict[str, tuple[str, Summary]] = {}
        self._measurements: dict[str, tuple[str, MeasurementRecord]] = {}
        self._studies: dict[str, tuple[str, Study]] = {}
        self._unread: set[Path] = set()
        self.problems: list[str] = []

    def find(self, path: Path) -> list[Path]:
        """Return the run folders and candidate files below a path."""
        if not path.is_dir():
            return [path.parent if path.name == RUN_FILE else path]
        found: list[Path] = []
        unreadable: list[OSError] = []
        suffixes = (STUDY_SUFFIX, MEASUREMENT_SUFFIX, COMPACT_SUFFIX)
        for folder, _, names in os.walk(path, onerror=unreadable.append):
            is_run = RUN_FILE in names
            found += [Path(folder)] if is_run else []
            files = [name for name in names if name.endswith(suffixes)]
            found += [Path(folder, n) for n in files if not (is_run and n == METRICS_FILE)]
        self.problems += [f"{e.filename} could not be opened ({e.strerror})." for e in unreadable]
        if not found and not unreadable:
            self.problems.append(f"{path} holds nothing to report.")
        return found

    def read(self, place: Path, *, is_expected: bool) -> None:
        """Read a run folder or a file; a foreign file is a problem only if it `is_expected`."""
        try:
            if place.is_dir():
                self.add(str(place), Summary.of(read_record(place)))
            elif place.name.endswith(STUDY_SUFFIX):
                self.add(str(place), read_study(place))
            elif place.name.endswith(MEASUREMENT_SUFFIX):
                self.add(str(place), read_measurement(place))
            elif place.name.endswith(COMPACT_SUFFIX):
                self._read_compact(place, is_expected=is_expected)
            else:
                kinds = "a run, a study, a measurement or a compact file"
                self.problems.append(f"{place} is not {kinds}.")
        except (ValueError, OSError) as error:
            self._unread.add(place.resolve())
            self.problems.append(f"{place} could not be read: {str(error).rstrip('.')}.")

    def _read_compact(self, path: Path, *, is_expected: bool) -> None:
        is_ours, bad = False, []
        for number, line in enumerate(path.read_bytes().splitlines(), start=1):
            try:
                data = parse_json(line)
                kind = data.get("format") if isinstance(data, dict) else None
                if not isinstance(kind, str) or kind not in FORMATS:
                    raise failure("format", f"be one of {', '.join(FORMATS)}", repr(kind))
                is_ours = True
                self.add(f"{path}, line {number}", FORMATS[kind].from_json(data))
            except ValueError as error:
                bad.append(f"line {number} ({str(error).rstrip('.')})")
        if bad:
            self._unread.add(path.resolve())
        if bad and is_ours:
            more = f" and {counted(len(bad) - 1, 'more line')}" if len(bad) > 1 else ""
            self.problems.append(f"{path}: {bad[0]}{more} could not be read.")
        elif is_expected and not is_ours:
            self.problems.append(f"{path} is not a compact file of holdfast.")

    def add(self, place: str, document: Study | MeasurementRecord | Summary) -> None:
        """Add a document that was read from a place; identical copies count once."""
        if isinstance(document, Summary):
            self._add_run(place, document)
        elif isinstance(document, Study):
            self._add_study(place, document)
        else:
            held = self._measurements.setdefault(document.hash, (place, document))
            if held[1] != document:
                what = f"measurements of one configuration ({document.hash[:8]})"
                self._report_duplicate(held[0], place, what, "the first")

    def _add_run(self, place: str, run: Summary) -> None:
        """Keep the run that ended, else the longer one, else the first."""
        held = self._runs.setdefault(run.hash, (place, run))
        if held[1] == run:
            return
        kept, other = held, (place, run)
        if _worth(run) > _worth(held[1]):
            kept, other = other, kept
        self._runs[run.hash] = kept
        reason = "the first" if _worth(run) == _worth(held[1]) else "the longer one"
        reason = "the one that ended" if kept[1].has_ended > other[1].has_ended else reason
        what = f"runs of one configuration ({run.hash[:8]})"
        self._report_duplicate(kept[0], other[0], what, reason)

    def _add_study(self, place: str, study: Study) -> None:
        """Keep the study with all runs of the other and more, else the first."""
        held_place, held = self._studies.setdefault(study.name, (place, study))
        if held == study or held.references > study.references:
            return
        if study.references > held.references:
            self._studies[study.name] = (place, study)
            return
        what = f"different studies named {study.name}"
        self._report_duplicate(held_place, place, what, "the first")

    def _report_duplicate(self, kept: str, other: str, what: str, reason: str) -> None:
        self.problems.append(f"{kept} and {other} hold two {what}; {kept} is used, {reason}.")

    def collection(self) -> Collection:
        """Return everything in an order that does not depend on where it was found."""
        problems = list(self.problems)
        for place, run in self._runs.values():
            if not run.has_ended:
                problems.append(f"{place} is {unfinished(run)}; it is left out of all means.")
        known = {key for _, study in self._studies.values() for key in study.references}
        for key, (place, _) in self._measurements.items():
            if key not in known:
                problems.append(f"{place} is a measurement of no study; it is not shown.")
        studies = [study for _, study in self._studies.values()]
        return Collection(
            runs=_sorted(self._runs),
            measurements=_sorted(self._measurements),
            studies=tuple(sorted(studies, key=lambda study: (study.place, study.name))),
            problems=tuple(sorted(problems)),
            unread=frozenset(self._unread),
        )


def _sorted(held: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    return {key: held[key][1] for key in sorted(held)}


def _worth(run: Summary) -> tuple[bool, int]:
    return run.has_ended, run.n_steps
