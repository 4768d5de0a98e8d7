"""The runs of a sweep and their folders."""

import os
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import final

from holdfast.lab.config import Config, hash_of, run_name
from holdfast.lab.records import RUN_FILE, parse_json, read_record


@final
@dataclass(frozen=True)
class PlannedRun:
    """A configuration and the folder of its run.

    Args:
        config: the configuration.
        folder: the run's folder; it may hold a part of the run, or the whole run, already.
    """

    config: Config
    folder: Path


def plan_runs(
    configs: Iterable[Config],
    folder: str | os.PathLike[str],
    *,
    known: Container[str] = frozenset(),
) -> list[PlannedRun]:
    """Give each configuration a run folder below `folder`.

    A run that exists anywhere below `folder` keeps its folder, whatever its name: runs are
    identified by their hash. If several folders hold the same run, the one that ended or else has
    most steps is used. All other runs get a new folder named by :func:`run_name`.

    Args:
        configs: the configurations.
        folder: the folder that holds all runs.
        known: hashes of runs that ended elsewhere, which need no search.
    """
    folder, configs = Path(folder), list(configs)
    searches = any(hash_of(config) not in known for config in configs)
    found = _folders_by_hash(folder) if searches else {}
    return [
        PlannedRun(config, _best(found.get(hash_of(config), [folder / run_name(config)])))
        for config in configs
    ]


def ended_runs(folder: str | os.PathLike[str]) -> frozenset[str]:
    """Hashes of the runs below `folder` that have ended."""
    found = _folders_by_hash(Path(folder))
    return frozenset(key for key, folders in found.items() if any(map(has_ended, folders)))


def has_ended(folder: Path) -> bool:
    """Whether the folder holds a whole record of a run that ended."""
    return _progress(folder)[1]


def _best(folders: list[Path]) -> Path:
    return folders[0] if len(folders) == 1 else max(folders, key=_progress)


def _progress(folder: Path) -> tuple[bool, bool, int]:
    """Whether the record is readable, whether the run ended, and the number of steps."""
    try:
        record = read_record(folder)
    except (ValueError, OSError):
        return (False, False, 0)
    return (True, record.end is not None, record.n_steps)


def _folders_by_hash(folder: Path) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob(RUN_FILE)):
        try:
            key = str(parse_json(path.read_bytes())["hash"])
        except (ValueError, TypeError, KeyError, OSError):
            continue  # if a planned run has this folder's name, its process reports the damage
        found.setdefault(key, []).append(path.parent)
    return found
