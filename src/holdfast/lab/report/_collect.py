"""Finding runs, studies and measurements on disk."""

import os
from collections.abc import Iterable
from pathlib import Path

from holdfast.checks import failure
from holdfast.lab.records import (
    MEASUREMENT_SUFFIX,
    METRICS_FILE,
    RUN_FILE,
    STUDY_SUFFIX,
    Summary,
    read_measurement,
    read_record,
    read_study,
)
from holdfast.lab.report._collection import Collection
from holdfast.lab.report._compact import COMPACT_SUFFIX, read_compact
from holdfast.lab.report._shelf import Shelf


def collect(paths: Iterable[str | os.PathLike[str]]) -> Collection:
    """Everything in these folders, at any depth, and in these files; what cannot be read is told in `problems`.

    Args:
        paths: folders, `run.json`, study, measurement and compact files, in any order.

    Raises:
        FileNotFoundError: if none of the paths exists.
        ValueError: if nothing was found.
    """
    given = sorted({Path(path) for path in paths})
    missing = [path for path in given if not path.exists()]
    if given and missing == given:
        raise FileNotFoundError(f"`paths` must exist, got {', '.join(map(str, given))}.")
    shelf = Shelf()
    shelf.problems += [f"{path} does not exist." for path in missing]
    places = {
        place.resolve(): place
        for path in given
        if path not in missing
        for place in _places(path, shelf)
    }
    for place in sorted(places.values()):
        _read(place, shelf, is_expected=place in given)
    if shelf.is_empty:
        what = "hold a run, a study, a measurement or a compact file"
        raise failure(
            "paths",
            what,
            " ".join(
                [", ".join(map(str, given)) or "none", *(f"({text})" for text in shelf.problems)]
            ),
        )
    return shelf.collection()


def _places(path: Path, shelf: Shelf) -> list[Path]:
    """The run folders and the files below a path that may be of interest."""
    if not path.is_dir():
        return [path.parent if path.name == RUN_FILE else path]
    found: list[Path] = []
    unreadable: list[OSError] = []
    for folder, _, names in os.walk(path, onerror=unreadable.append):
        is_run = RUN_FILE in names
        found += [Path(folder)] if is_run else []
        found += [
            Path(folder, name)
            for name in names
            if name.endswith((STUDY_SUFFIX, MEASUREMENT_SUFFIX, COMPACT_SUFFIX))
            and not (is_run and name == METRICS_FILE)
        ]
    shelf.problems += [
        f"{error.filename} could not be opened ({error.strerror})." for error in unreadable
    ]
    if not found and not unreadable:
        shelf.problems.append(f"{path} holds nothing to report.")
    return found


def _read(place: Path, shelf: Shelf, *, is_expected: bool) -> None:
    try:
        if place.is_dir():
            shelf.add_run(str(place), Summary.of(read_record(place)))
        elif place.name.endswith(STUDY_SUFFIX):
            shelf.add_study(str(place), read_study(place))
        elif place.name.endswith(MEASUREMENT_SUFFIX):
            shelf.add_measurement(str(place), read_measurement(place))
        elif place.name.endswith(COMPACT_SUFFIX):
            read_compact(place, shelf, is_expected=is_expected)
        else:
            shelf.problems.append(
                f"{place} is neither a run, a study, a measurement nor a compact file."
            )
    except (ValueError, OSError) as error:
        shelf.unread.add(place.resolve())
        shelf.problems.append(f"{place} could not be read: {str(error).rstrip('.')}.")
