"""Compact files: everything that a report needs, one JSON object a line."""

import json
import os
from collections.abc import Callable
from pathlib import Path

from holdfast.checks import failure
from holdfast.lab.records import MeasurementRecord, Study, Summary, parse_json, write_atomically
from holdfast.lab.report._collection import Collection
from holdfast.lab.report._shelf import Shelf
from holdfast.lab.report._words import counted

COMPACT_SUFFIX = ".jsonl"


def write_compact(found: Collection, compact: str | os.PathLike[str]) -> Path:
    """Write studies, measurements and summaries into the file `compact`, which :func:`collect` reads back; returns its path.

    The same things give the same bytes. The order of keys is kept, because it is the order in which results are shown.

    Raises:
        ValueError: if the file is one of those that were read, and not all of it could be: that would be lost.
    """
    path = Path(compact)
    if path.resolve() in found.unread:
        raise failure(
            "compact", "not be a file of which something could not be read, and would be lost", path
        )
    items = [study.to_json() for study in found.studies]
    items += [found.measurements[key].content for key in sorted(found.measurements)]
    items += [found.runs[key].content for key in sorted(found.runs)]
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(item, separators=(",", ":")) + "\n" for item in items)
    write_atomically(path, lambda new: new.write_text(text, encoding="utf-8", newline="\n"))
    return path


def read_compact(path: Path, shelf: Shelf, *, is_expected: bool) -> None:
    """Put what a compact file holds on the shelf. A file without one line of ours is passed over, unless it was `is_expected`."""
    add: dict[str, Callable[[str, object], None]] = {
        "holdfast study": lambda place, data: shelf.add_study(place, Study.from_json(data)),
        "holdfast measurement": lambda place, data: shelf.add_measurement(
            place, MeasurementRecord.from_json(data)
        ),
        "holdfast summary": lambda place, data: shelf.add_run(place, Summary.from_json(data)),
    }
    is_ours, bad = False, []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            data = parse_json(line)
            kind = data.get("format") if isinstance(data, dict) else None
            if not isinstance(kind, str) or kind not in add:
                raise failure("line", f"be of the formats {', '.join(add)}", repr(kind))
            is_ours = True
            add[kind](f"{path}, line {number},", data)
        except ValueError as error:
            bad.append(f"line {number} ({str(error).rstrip('.')})")
    if bad:
        shelf.unread.add(path.resolve())
    if bad and is_ours:
        more = f" and {counted(len(bad) - 1, 'more line')}" if len(bad) > 1 else ""
        shelf.problems.append(f"{path}: {bad[0]}{more} could not be read.")
    elif is_expected and not is_ours:
        shelf.problems.append(f"{path} is no compact file of holdfast.")
