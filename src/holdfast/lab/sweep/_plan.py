"""The runs of a sweep and their folders."""

import os
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from holdfast.lab.config import Config, hash_of, run_name
from holdfast.lab.records import RUN_FILE, parse_json, read_record


@final
@dataclass(frozen=True)
class PlannedRun:
    """A configuration and the folder of its run, which may hold part or all of the run already."""

    config: Config
    folder: Path

    @property
    def has_ended(self) -> bool:
        """Whether the folder holds a whole record of this very run, and the run ended."""
        try:
            record = read_record(self.folder)
        except (ValueError, OSError):  # its process reports what is wrong
            return False
        return record.end is not None and record.hash == hash_of(self.config)


def plan_runs(
    configs: Sequence[Config],
    folder: str | os.PathLike[str],
    *,
    known: Container[str] = frozenset(),
) -> list[PlannedRun]:
    """Give each configuration a folder for its run.

    A run that exists anywhere below `folder` keeps its folder, whatever its name: runs are
    identified by their hashes. Of several folders with the same run, the one that ended or has most
    steps is used. Every other run gets a folder named by :func:`run_name`.

    Args:
        configs: the configurations.
        folder: the folder for all runs.
        known: hashes of runs that ended elsewhere; if all did, `folder` is not searched.
    """
    folder = Path(folder)
    searches = any(hash_of(config) not in known for config in configs)
    found = _folders_by_hash(folder) if searches else {}
    return [
        PlannedRun(config, _best(found.get(hash_of(config), [folder / run_name(config)])))
        for config in configs
    ]


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
            continue  # if a planned run has this folder, its process reports the damage
        found.setdefault(key, []).append(path.parent)
    return found
