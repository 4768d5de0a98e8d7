"""The record in a run's folder: of this very run, of a shorter one, or of another."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.checks import failure
from holdfast.lab.config import Config, config_to_json, hash_of
from holdfast.lab.records import Record, config_hash, is_record, read_record
from holdfast.lab.training._evaluation import MEASURES
from holdfast.lab.training._own_checkpoint import CHECKPOINT_FILE


def read_own(config: Config, folder: Path) -> Record | None:
    """The record of this run in the folder, or None if the folder is new.

    The record of the same run with fewer steps is taken as one that has not ended.

    Raises:
        ValueError: if the folder holds another run, or one that cannot be extended to these steps.
    """
    if not is_record(folder):
        return None
    known = read_record(folder)
    if known.hash == hash_of(config):
        return known
    here, n_steps = config_to_json(config), known.config.get("n_steps")
    if config_hash({**here, "n_steps": n_steps}) != known.hash:
        differences = ", ".join(_differences(known.config, here))
        other = f"{folder}, which holds another ({differences})"
        raise failure("folder", "be new, or hold this very run", other)
    assert isinstance(n_steps, int)
    _check_longer(config, known, n_steps)
    return replace(known, end=None)


def _check_longer(config: Config, known: Record, n_steps: int) -> None:
    """Refuse more steps where a run of that length would have begun otherwise, and fewer steps."""
    steps, folder = config.n_steps, known.folder
    if steps < n_steps:
        raise failure("n_steps", f"be at least {n_steps}, those of the run in {folder}", steps)
    if known.end is not None and known.end["end"] == "diverged":
        raise failure("n_steps", f"stay {n_steps}, because the run in {folder} diverged", steps)
    if config.schedule.spans_run:
        requirement = (
            f"stay {n_steps} in {folder}, because the schedule {config.schedule.name} depends on "
            "the length of the run; use a new folder for a longer one"
        )
        raise failure("n_steps", requirement, steps)
    if known.end is not None and not (folder / CHECKPOINT_FILE).exists():
        missing = f"hold {CHECKPOINT_FILE}, from which a run is extended"
        raise failure("folder", missing, f"{folder} without it")


def without_evaluation(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of a step as it is when no evaluation follows the step."""
    kept = {key: value for key, value in entry.items() if key not in MEASURES}
    seconds = {part: took for part, took in entry["seconds"].items() if part != "evaluation"}
    return {**kept, "seconds": seconds}


def _differences(there: object, here: object, name: str = "") -> Iterator[str]:
    """What differs between two configurations, such as "`optimizer.lr` is 0.1 there, 0.2 here"."""
    both = (there, here)
    names = [one.get("name") if isinstance(one, dict) else one for one in both]
    # Two rules, say, have different fields; their names tell more.
    if isinstance(there, dict) and isinstance(here, dict) and names[0] == names[1]:
        for key in {**there, **here}:
            inner = f"{name}.{key}" if name else key
            yield from _differences(there.get(key), here.get(key), inner)
    elif there != here:
        yield f"`{name}` is {names[0]} there, {names[1]} here"
