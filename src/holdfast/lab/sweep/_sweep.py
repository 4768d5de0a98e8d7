"""All runs of a plan, side by side, each of them once."""

import os
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, final

import torch

from holdfast.errors import NewerRecordError
from holdfast.lab.config import Config, config_to_json, hash_of, run_name
from holdfast.lab.paper import Plan
from holdfast.lab.paper.measurements import Measurement, measurements
from holdfast.lab.records import (
    MEASUREMENT_SUFFIX,
    RUN_FILE,
    config_hash,
    machine,
    parse_json,
    read_measurement,
    read_record,
    versions,
    write_measurement,
)
from holdfast.lab.sweep._cores import threads_each
from holdfast.lab.sweep._events import SweepObserver
from holdfast.lab.sweep._worker import reason_of
from holdfast.lab.sweep._workers import Workers


@final
@dataclass
class SweepResult:
    """What became of a sweep: how many measurements and runs there are, made or ended, what failed and why, and whether it was stopped."""

    n_measurements: int = 0
    n_measured: int = 0
    n_runs: int = 0
    n_ended: int = 0
    failures: list[str] = field(default_factory=list)
    was_stopped: bool = False


def sweep(
    plan: Plan,
    folder: str | os.PathLike[str],
    observer: SweepObserver,
    *,
    n_workers: int,
    known: Container[str] = frozenset(),
    data_dir: str | os.PathLike[str] | None = None,
    device: torch.device | str = "cpu",
    stop: Callable[[], bool] = lambda: False,
    command: Sequence[str] = (),
) -> SweepResult:
    """Make what the folder does not have yet of a plan.

    Runs are known by their hash, wherever in the folder they lie: those that ended are not made again, those that stopped go on. Whatever kills the sweep, the next one
    goes on from there. A run that fails is told, and the others go on.

    Args:
        plan: the runs and measurements.
        folder: for all of them.
        observer: is told how it goes.
        n_workers: processes side by side. They share the cores; none of them has more threads than its part, or than this process.
        known: hashes of runs that ended elsewhere, and are not made again.
        data_dir: where data sets may be, besides the usual places.
        device: where to compute.
        stop: asked every now and then; if it says True, all runs stop after their step, with a checkpoint.
        command: what makes the same, for the records.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    result = SweepResult(n_measurements=len(plan.measurements), n_runs=len(plan.configs))
    observer.planned(len(plan.measurements), list(plan.configs))
    for measurement in plan.measurements:
        if stop():
            result.was_stopped = True
            return result
        _measure(measurement, folder, command, observer, result)
    missing = _missing(plan.configs, folder, known, observer, result)
    if missing:
        options = {
            "data_dir": None if data_dir is None else os.fspath(data_dir),
            "device": str(device),
            "command": list(command),
        }
        n_threads = threads_each(
            n_workers
        )  # however few runs are left: other threads would round otherwise
        with Workers(min(n_workers, len(missing)), n_threads) as workers:
            _make(missing, workers, options, observer, stop, result)
    return result


def _measure(
    measurement: Measurement,
    folder: Path,
    command: Sequence[str],
    observer: SweepObserver,
    result: SweepResult,
) -> None:
    """Measure, unless it was measured before."""
    try:
        is_new = _make_measurement(measurement, folder, command)
    except Exception as error:  # whatever it is, the others shall be made
        result.failures.append(f"{measurement.name}: {reason_of(error)}")
        observer.not_measured(measurement, reason_of(error))
        return
    result.n_measured += 1
    observer.measured(measurement, is_new=is_new)


def _make_measurement(measurement: Measurement, folder: Path, command: Sequence[str]) -> bool:
    """Whether there was need to."""
    config = measurements.to_json(measurement)
    path = folder / f"{measurement.name}-{config_hash(config)[:8]}{MEASUREMENT_SUFFIX}"
    if path.exists():
        try:
            read_measurement(path)
        except NewerRecordError:
            raise
        except ValueError:
            pass  # damaged: measured again
        else:
            return False
    where = {
        "versions": versions(),
        "machine": machine(torch.device("cpu")),
        "command": list(command),
    }
    write_measurement(folder, measurement.name, config, measurement.measure(), **where)
    return True


def _missing(
    configs: Sequence[Config],
    folder: Path,
    known: Container[str],
    observer: SweepObserver,
    result: SweepResult,
) -> deque[tuple[Config, Path]]:
    """The runs that are still to be made, and where."""
    found = _best_by_hash(folder)
    missing: deque[tuple[Config, Path]] = deque()
    for config in configs:
        worth, place = found.get(hash_of(config), (NOTHING, folder / run_name(config)))
        if hash_of(config) in known or worth.has_ended:
            result.n_ended += 1
            observer.known(config)
        else:
            missing.append((config, place))
    return missing


def ended_runs(folder: str | os.PathLike[str]) -> frozenset[str]:
    """The hashes of the runs in the folder that need not be made again."""
    return frozenset(
        key for key, (worth, _) in _best_by_hash(Path(folder)).items() if worth.has_ended
    )


class _Worth(NamedTuple):
    """By which one of two folders of one run is the better one to go on with."""

    is_whole: bool
    has_ended: bool
    n_steps: int


NOTHING = _Worth(is_whole=False, has_ended=False, n_steps=0)


def _best_by_hash(folder: Path) -> dict[str, tuple[_Worth, Path]]:
    """The runs in the folder by their hash."""
    found: dict[str, tuple[_Worth, Path]] = {}
    for path in sorted(folder.rglob(RUN_FILE)):
        try:
            key = str(parse_json(path.read_bytes())["hash"])
        except (ValueError, TypeError, KeyError, OSError):
            continue  # of no use here; whoever makes a run of this name is told what is wrong
        worth = _worth(path.parent)
        if key not in found or worth > found[key][0]:
            found[key] = (worth, path.parent)
    return found


def _worth(place: Path) -> _Worth:
    try:
        record = read_record(place)
    except (ValueError, OSError):
        return NOTHING
    return _Worth(is_whole=True, has_ended=record.end is not None, n_steps=record.n_steps)


def _make(
    missing: deque[tuple[Config, Path]],
    workers: Workers,
    options: Mapping[str, object],
    observer: SweepObserver,
    stop: Callable[[], bool],
    result: SweepResult,
) -> None:
    in_hand: dict[int, tuple[Config, Path]] = {}
    while missing or in_hand:
        if not result.was_stopped and stop():
            result.was_stopped = True
            workers.stop()
        if result.was_stopped:
            missing.clear()
        for number in workers.idle[: len(missing)]:
            config, place = in_hand[number] = missing.popleft()
            observer.began(number, config, place)
            workers.give(
                number, {"config": config_to_json(config), "folder": os.fspath(place), **options}
            )
        for number, message in workers.news():
            if "entry" in message:
                observer.stepped(number, message["entry"])
                continue
            config, place = in_hand.pop(number)
            if "failed" in message:
                result.failures.append(f"{place.name}: {message['failed']}")
                observer.failed(number, config, message["failed"])
            else:
                record = read_record(place)
                result.n_ended += record.end is not None
                observer.ended(number, config, record)
