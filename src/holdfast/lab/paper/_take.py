"""Taking the measurements of a plan."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from holdfast.errors import NewerRecordError
from holdfast.lab.paper.measurements import Measurement, measurements
from holdfast.lab.records import (
    MEASUREMENT_SUFFIX,
    config_hash,
    machine,
    read_measurement,
    versions,
    write_measurement,
)
from holdfast.lab.sweep import SweepResult


def take_measurements(
    planned: Sequence[Measurement],
    folder: str | os.PathLike[str],
    *,
    measured: Callable[[Measurement, bool], None],
    stop: Callable[[], bool] = lambda: False,
    command: Sequence[str] = (),
) -> SweepResult:
    """Take the measurements that the folder does not have yet, in this process.

    Args:
        planned: the measurements.
        folder: the folder that holds all of them.
        measured: called with each measurement that is there, and whether it was taken now.
        stop: called before each measurement; if it returns True, the rest is left out.
        command: the command line, for the records.

    Returns:
        The result, with measurements in the place of runs. One that fails does not stop the others.
    """
    result = SweepResult(n_runs=len(planned))
    for measurement in planned:
        if stop():
            result.was_stopped = True
            break
        try:
            is_new = _take(measurement, Path(folder), command)
        except Exception as error:  # of any kind: the others shall be taken
            result.add_failure(measurement.name, error)
        else:
            result.n_ended += 1
            measured(measurement, is_new)
    return result


def _take(measurement: Measurement, folder: Path, command: Sequence[str]) -> bool:
    """Take the measurement unless the folder has it; return whether it was taken."""
    config = measurements.to_json(measurement)
    path = folder / f"{measurement.name}-{config_hash(config)[:8]}{MEASUREMENT_SUFFIX}"
    if path.exists():
        try:
            read_measurement(path)
        except NewerRecordError:
            raise
        except ValueError:
            pass  # damaged: taken again
        else:
            return False
    provenance = {
        "versions": versions(),
        "machine": machine(torch.device("cpu")),
        "command": list(command),
    }
    write_measurement(folder, measurement.name, config, measurement.measure(), **provenance)
    return True
