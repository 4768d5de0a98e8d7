"""Reading a record."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from holdfast.checks import failure
from holdfast.errors import NewerRecordError
from holdfast.lab.records._documents import parse_json
from holdfast.lab.records._writing import FORMAT, METRICS_FILE, RUN_FILE, VERSION, config_hash

TIMES = ("seconds", "rank_seconds")
"""What an entry says of time."""


@final
@dataclass(frozen=True, eq=False)
class Record:
    """The record of a run.

    Args:
        folder: the run's folder.
        run: content of `run.json`: configuration, hash, versions, machine, command, start.
        entries: one mapping per step, in order, from `metrics.jsonl`.
        end: None if the run has not ended, else a mapping with "end" ("finished" or "diverged"),
            "step" and, if it diverged, "reason".
    """

    folder: Path
    run: dict[str, Any]
    entries: list[dict[str, Any]]
    end: dict[str, Any] | None

    @property
    def config(self) -> dict[str, Any]:
        """The configuration as JSON."""
        config: dict[str, Any] = self.run["config"]
        return config

    @property
    def hash(self) -> str:
        """Hash of the configuration."""
        return str(self.run["hash"])

    @property
    def accuracy(self) -> float | None:
        """The last test accuracy; None before the first evaluation."""
        found = self._values("accuracy")
        return float(found[-1]) if found else None

    @property
    def n_steps(self) -> int:
        """Number of steps made."""
        return len(self.entries)

    @property
    def bad_weight(self) -> float | None:
        """Mean share of the weight of bad rows; None if rows have no weights or none is bad."""
        found = self._values("bad_weight")
        return sum(found) / len(found) if found else None

    @property
    def bytes_per_round(self) -> float | None:
        """Mean number of bytes that a worker sends in a round; None without workers."""
        found = self._values("n_bytes")
        return sum(found) / len(found) if found else None

    def seconds_per_step(self) -> dict[str, float]:
        """Mean time per step of each part, evaluations included."""
        totals: dict[str, float] = {}
        for entry in self.entries:
            for part, seconds in entry["seconds"].items():
                totals[part] = totals.get(part, 0.0) + seconds
        return {part: total / len(self.entries) for part, total in totals.items()}

    def without_times(self) -> list[dict[str, Any]]:
        """The entries without timings, which every run of the configuration reproduces."""
        return [
            {key: value for key, value in entry.items() if key not in TIMES}
            for entry in self.entries
        ]

    def _values(self, key: str) -> list[float]:
        return [entry[key] for entry in self.entries if entry.get(key) is not None]


def is_record(folder: str | os.PathLike[str]) -> bool:
    """Whether the folder holds a run."""
    return (Path(folder) / RUN_FILE).is_file()


def read_record(folder: str | os.PathLike[str]) -> Record:
    """Read the record in a folder, without an incomplete last line, which a kill may leave.

    Raises:
        FileNotFoundError: if the folder holds no run.
        NewerRecordError: if a newer version of holdfast wrote it.
        ValueError: if it is damaged.
    """
    folder = Path(folder)
    if not is_record(folder):
        raise FileNotFoundError(f"`folder` must hold a run ({RUN_FILE}), got {folder}.")
    run = _read_run(folder / RUN_FILE)
    lines = _read_lines(folder / METRICS_FILE)
    end = lines.pop() if lines and "end" in lines[-1] else None
    # A run that was killed when it was about to be extended still has the end of the shorter one.
    is_extended = end is not None and end["end"] == "finished" and "extended_from" in run
    n_steps = run["config"].get("n_steps")
    if is_extended and isinstance(n_steps, int) and len(lines) < n_steps:
        end = None
    return Record(folder, run, lines, end)


def _read_run(path: Path) -> dict[str, Any]:
    try:
        run: dict[str, Any] = parse_json(path.read_bytes())
    except ValueError as error:
        raise failure("folder", f"hold a whole {RUN_FILE}", f"{path} ({error})") from error
    is_own = isinstance(run, dict) and run.get("format") == FORMAT
    if not is_own or not isinstance(run.get("version"), int):
        raise failure("folder", f"hold a {RUN_FILE} written by holdfast", path)
    if run["version"] > VERSION:
        written_by = run.get("versions")
        release = written_by.get("holdfast") if isinstance(written_by, dict) else "(unknown)"
        raise NewerRecordError(
            f"`folder` must hold a record of version {VERSION} or older, got version "
            f"{run['version']}, written by holdfast {release}, in {path.parent}; update holdfast."
        )
    if not isinstance(run.get("config"), dict) or not isinstance(run.get("hash"), str):
        raise failure("folder", f"hold a {RUN_FILE} with a configuration and its hash", path)
    if run["hash"] != config_hash(run["config"]):
        got = f"{path}, whose configuration does not have its hash"
        raise failure("folder", f"hold a {RUN_FILE} as it was written", got)
    return run


def _read_lines(path: Path) -> list[dict[str, Any]]:
    content = path.read_bytes() if path.exists() else b""
    found: list[dict[str, Any]] = []
    # A kill may leave an incomplete last line, without line break.
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        try:
            entry = parse_json(line)
            if not (_is_entry(entry, number) or is_end(entry)):
                raise ValueError(f"neither the entry of step {number} nor an end")
        except ValueError as error:
            got = f"{path}, line {number} ({error})"
            raise failure("folder", "hold a whole record", got) from error
        found.append(entry)
    if any("end" in entry for entry in found[:-1]):
        raise failure("folder", "hold a record whose end is its last line", path)
    return found


def _is_entry(entry: Any, step: int) -> bool:
    """Whether this is the entry of a step."""
    is_whole = isinstance(entry, dict) and {"step", "loss", "seconds"} <= entry.keys()
    return is_whole and entry["step"] == step and isinstance(entry["seconds"], dict)


def is_end(entry: object) -> bool:
    """Whether this is the last line of a run that ended."""
    if not isinstance(entry, dict):
        return False
    has_reason = isinstance(entry.get("reason"), str)
    return entry.get("end") == "finished" or (entry.get("end") == "diverged" and has_reason)
