"""Measurements: results that were computed without training, one file each."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, final

from holdfast.lab.records._documents import Document, read_json
from holdfast.lab.records._files import write_atomically
from holdfast.lab.records._writing import config_hash

MEASUREMENT_SUFFIX: Final = ".measurement.json"
"""End of the file names of measurements."""


@final
@dataclass(frozen=True, kw_only=True)
class MeasurementRecord(Document):
    """A measurement; `result` holds the measured values by name."""

    FORMAT = "holdfast measurement"

    result: dict[str, Any]


def write_measurement(
    folder: str | os.PathLike[str],
    name: str,
    config: Mapping[str, Any],
    result: Mapping[str, Any],
    **provenance: Any,
) -> Path:
    """Write a measurement; `provenance` are other fields of :class:`MeasurementRecord`.

    Returns:
        The path of the file.
    """
    record = MeasurementRecord(
        hash=config_hash(config),
        config=dict(config),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        result=dict(result),
        **provenance,
    )
    path = Path(folder) / f"{name}-{record.hash[:8]}{MEASUREMENT_SUFFIX}"
    text = json.dumps(record.to_json(), indent=1, allow_nan=False) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda new: new.write_text(text))
    return path


def read_measurement(path: str | os.PathLike[str]) -> MeasurementRecord:
    """Read a measurement from a file.

    Raises:
        NewerRecordError: if a later version wrote it.
        ValueError: if it is damaged.
    """
    return MeasurementRecord.from_json(read_json(path, "measurement"))
