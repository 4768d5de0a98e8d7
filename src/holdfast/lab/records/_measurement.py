"""Measurements: what was found without training, one file each."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, final

from holdfast.checks import failure
from holdfast.lab.records._documents import check_config, check_document, read_json
from holdfast.lab.records._files import write_atomically
from holdfast.lab.records._writing import config_hash

MEASUREMENT_FORMAT: Final = "holdfast measurement"
MEASUREMENT_VERSION: Final = 1
MEASUREMENT_SUFFIX: Final = ".measurement.json"


@final
@dataclass(frozen=True, eq=False)
class MeasurementRecord:
    """What a measurement left.

    Args:
        content: the whole file: configuration, its hash, result, versions, machine, start.
    """

    content: dict[str, Any]

    @property
    def config(self) -> dict[str, Any]:
        """What was measured."""
        config: dict[str, Any] = self.content["config"]
        return config

    @property
    def hash(self) -> str:
        """The configuration's hash."""
        return str(self.content["hash"])

    @property
    def result(self) -> dict[str, Any]:
        """What was found."""
        result: dict[str, Any] = self.content["result"]
        return result

    @staticmethod
    def from_json(data: object) -> "MeasurementRecord":
        """The record with this content.

        Raises:
            NewerRecordError: if a later release wrote it.
            ValueError: if it is damaged.
        """
        data = check_document(data, "measurement", MEASUREMENT_FORMAT, MEASUREMENT_VERSION)
        check_config(data, "measurement")
        if not isinstance(data.get("result"), dict):
            raise failure("measurement", "have a result", sorted(data))
        return MeasurementRecord(data)


def write_measurement(
    folder: str | os.PathLike[str],
    name: str,
    config: Mapping[str, Any],
    result: Mapping[str, Any],
    **provenance: Any,
) -> Path:
    """Keep the result of a measurement; returns its path."""
    content = {
        "format": MEASUREMENT_FORMAT,
        "version": MEASUREMENT_VERSION,
        "hash": config_hash(config),
        "config": config,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        **provenance,
        "result": result,
    }
    path = Path(folder) / f"{name}-{content['hash'][:8]}{MEASUREMENT_SUFFIX}"
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda new: new.write_text(text))
    return path


def read_measurement(path: str | os.PathLike[str]) -> MeasurementRecord:
    """The measurement in a file.

    Raises:
        NewerRecordError: if a later release wrote it.
        ValueError: if it is damaged.
    """
    return MeasurementRecord.from_json(read_json(path, "measurement"))
