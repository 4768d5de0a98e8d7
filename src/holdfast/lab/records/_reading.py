"""Reading a record."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from holdfast.checks import failure
from holdfast.errors import NewerRecordError
from holdfast.lab.records._documents import parse_json
from holdfast.lab.records._writing import FORMAT, METRICS_FILE, RUN_FILE, VERSION, config_hash


@final
@dataclass(frozen=True, eq=False)
class Record:
    """What a run left.

    Args:
        folder: where it lies.
        run: the content of `run.json`: configuration, hash, versions, machine, command, start.
        entries: one mapping per step, in order, as `metrics.jsonl` has them.
        end: how the run ended: None if it did not yet, else a mapping with "end" ("finished" or "diverged"), "step" and "reason".
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
        """The configuration's hash."""
        return str(self.run["hash"])

    @property
    def accuracy(self) -> float | None:
        """The last test accuracy; None before the first evaluation."""
        found = [entry["accuracy"] for entry in self.entries if entry.get("accuracy") is not None]
        return float(found[-1]) if found else None

    @property
    def n_steps(self) -> int:
        """How many steps were made."""
        return len(self.entries)

    @property
    def bad_weight(self) -> float | None:
        """The mean share of the rows' weight that bad rows had; None where rows have no weight, or none is bad."""
        found = [entry["bad_weight"] for entry in self.entries if "bad_weight" in entry]
        return sum(found) / len(found) if found else None

    def seconds_per_step(self) -> dict[str, float]:
        """The mean time of a step by its parts; "evaluation" is the mean over all steps, too."""
        totals: dict[str, float] = {}
        for entry in self.entries:
            for part, seconds in entry["seconds"].items():
                totals[part] = totals.get(part, 0.0) + seconds
        return {part: total / len(self.entries) for part, total in totals.items()}

    def without_times(self) -> list[dict[str, Any]]:
        """The entries as another run of the same configuration should make them, too."""
        return [
            {key: value for key, value in entry.items() if key != "seconds"}
            for entry in self.entries
        ]


def is_record(folder: str | os.PathLike[str]) -> bool:
    """Whether a run was begun in this folder."""
    return (Path(folder) / RUN_FILE).is_file()


def read_record(folder: str | os.PathLike[str]) -> Record:
    """The record in a folder; an entry torn at the end by a kill is left out.

    Raises:
        FileNotFoundError: if no run was begun there.
        NewerRecordError: if a later release wrote it.
        ValueError: if it is damaged.
    """
    folder = Path(folder)
    if not is_record(folder):
        raise FileNotFoundError(f"`folder` must hold a run ({RUN_FILE}), got {folder}.")
    run = _read_run(folder / RUN_FILE)
    lines = _lines(folder / METRICS_FILE)
    end = lines.pop() if lines and "end" in lines[-1] else None
    return Record(folder, run, lines, end)


def _read_run(path: Path) -> dict[str, Any]:
    try:
        run = parse_json(path.read_bytes())
    except ValueError as error:
        raise failure("folder", f"hold a whole {RUN_FILE}", f"{path} ({error})") from error
    if (
        not isinstance(run, dict)
        or run.get("format") != FORMAT
        or not isinstance(run.get("version"), int)
    ):
        raise failure("folder", f"hold a {RUN_FILE} written by holdfast", path)
    if run["version"] > VERSION:
        releases = run.get("versions")
        release = releases.get("holdfast") if isinstance(releases, dict) else "of a later release"
        raise NewerRecordError(
            f"`folder` must hold a record of version {VERSION} or older, got version {run['version']}, "
            f"written by holdfast {release}, in {path.parent}; update holdfast."
        )
    if not isinstance(run.get("config"), dict) or not isinstance(run.get("hash"), str):
        raise failure("folder", f"hold a {RUN_FILE} with a configuration and its hash", path)
    if run["hash"] != config_hash(run["config"]):
        raise failure(
            "folder",
            f"hold a {RUN_FILE} as it was written",
            f"{path}, whose configuration does not have its hash",
        )
    return run


def _lines(path: Path) -> list[dict[str, Any]]:
    content = path.read_bytes() if path.exists() else b""
    found = []
    for number, line in enumerate(
        content.split(b"\n")[:-1], start=1
    ):  # what no line break ends was torn by a kill
        try:
            entry = parse_json(line)
        except ValueError as error:
            raise failure(
                "folder", "hold a whole record", f"{path}, line {number} ({error})"
            ) from error
        if not (_is_entry(entry, number) or is_end(entry)):
            raise failure(
                "folder",
                "hold a whole record",
                f"{path}, line {number} (neither the entry of step {number} nor an end)",
            )
        found.append(entry)
    if any("end" in entry for entry in found[:-1]):
        raise failure("folder", "hold a record whose end is its last line", path)
    return found


def _is_entry(entry: object, step: int) -> bool:
    """Whether it is what a run writes after this step."""
    is_whole = isinstance(entry, dict) and {"step", "loss", "seconds"} <= entry.keys()
    return is_whole and entry["step"] == step and isinstance(entry["seconds"], dict)  # type: ignore[index]


def is_end(entry: object) -> bool:
    """Whether it is what a run writes last."""
    if not isinstance(entry, dict):
        return False
    return entry.get("end") == "finished" or (
        entry.get("end") == "diverged" and isinstance(entry.get("reason"), str)
    )
