"""A run from its beginning, or from where it stopped, to its end."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from holdfast.checks import check_nonnegative, failure
from holdfast.errors import DivergedError, NonFiniteMemoryError, NonFiniteRowsError
from holdfast.lab.config import Config, config_from_json, config_to_json, hash_of
from holdfast.lab.data import load
from holdfast.lab.models import models
from holdfast.lab.records import (
    METRICS_FILE,
    RUN_FILE,
    Journal,
    Record,
    create_record,
    is_record,
    load_checkpoint,
    machine,
    read_record,
    save_checkpoint,
    versions,
)
from holdfast.lab.training._experiment import Experiment
from holdfast.lab.training._loop import training

CHECKPOINT_FILE = "checkpoint.safetensors"

Watcher = Callable[[Mapping[str, Any]], None]
"""Is shown every entry once the record has it."""


def run(
    config: Config,
    folder: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    device: torch.device | str = "cpu",
    checkpoint_seconds: float = 30.0,
    watchers: Sequence[Watcher] = (),
    stop: Callable[[], bool] = lambda: False,
    command: Sequence[str] = (),
) -> Record:
    """Train as the configuration says, and leave the record and checkpoints in the folder.

    Whatever the folder has of the same run is taken up: a run that ended is returned as it is, one that was killed goes on from its last
    checkpoint, and its record will be the same, bit for bit and times apart, as if nothing had happened.

    Args:
        config: the configuration.
        folder: of this run alone; made if missing.
        data_dir: where the data set may be, besides the usual places.
        device: where to compute.
        checkpoint_seconds: time between checkpoints; 0 makes one after each step. There is always one at the end.
        watchers: are shown every new entry.
        stop: asked after each step; if it says True, the run stops there with a checkpoint, and can be taken up later.
        command: what the user typed, for the record.

    Returns:
        The record. Its `end` says whether the run finished, diverged (with the reason; the last checkpoint is of a step where all was well) or
        was stopped (None).

    Raises:
        ValueError: if the folder holds another run.
        MissingDataError: if the data set is not there.
        RunInUseError: if another process is at it.
        OSError: if the disk refuses.
    """
    folder, device = Path(folder), torch.device(device)
    check_nonnegative("checkpoint_seconds", checkpoint_seconds)
    known = _known(config, folder)
    if known is not None and known.end is not None:
        return known
    experiment = Experiment(config, load(config.data, data_dir=data_dir), device)
    folder.mkdir(parents=True, exist_ok=True)
    with Journal(folder) as journal:
        known = _known(
            config, folder
        )  # again, because from here on the folder is this process's alone
        if known is None:
            create_record(
                folder,
                config_to_json(config),
                versions=versions(),
                machine=machine(device),
                command=list(command),
            )
        elif known.end is not None:
            return known
        step = _take_up(experiment, folder, journal)
        try:
            saved = time.monotonic()
            for entry in training(experiment, step):
                step = entry["step"]
                journal.append(entry)
                for watch in watchers:
                    watch(entry)
                stops = stop() and step < config.n_steps
                if stops or time.monotonic() - saved >= checkpoint_seconds:
                    _save(experiment, folder, journal, step)
                    saved = time.monotonic()
                if stops:
                    return read_record(folder)
            _save(experiment, folder, journal, step)
            journal.append({"end": "finished", "step": step})
        except (DivergedError, NonFiniteRowsError, NonFiniteMemoryError) as error:
            journal.append(
                {"end": "diverged", "step": step, "reason": f"After step {step}: {error}"}
            )
        except ValueError:  # parts that do not fit together, which showed at the first step
            if known is None and step == 0:
                _withdraw(folder)
            raise
        journal.sync()
    return read_record(folder)


def resume(folder: str | os.PathLike[str], **options: Any) -> Record:
    """Go on with the run in a folder; options as in :func:`run`."""
    return run(config_from_json(read_record(Path(folder)).config), folder, **options)


def trained_model(folder: str | os.PathLike[str]) -> nn.Module:
    """The model of a run as its last checkpoint has it, in eval mode."""
    folder = Path(folder)
    config = config_from_json(read_record(folder).config)
    if not (folder / CHECKPOINT_FILE).exists():
        raise FileNotFoundError(
            f"`folder` must hold a checkpoint ({CHECKPOINT_FILE}), got {folder}, whose run ended before its first."
        )
    state = load_checkpoint(folder / CHECKPOINT_FILE)
    model = models[config.model](shape=tuple(state["shape"]), generator=torch.Generator())
    model.load_state_dict(state["experiment"]["model"])
    return model.eval()


def _known(config: Config, folder: Path) -> Record | None:
    """What the folder has of this run; another run is refused."""
    if not is_record(folder):
        return None
    known = read_record(folder)
    if known.hash != hash_of(config) and not _is_older_form(known, config):
        raise failure(
            "folder",
            "be new, or hold this very run",
            f"{folder}, which holds another (its hash is {known.hash[:8]})",
        )
    return known


def _is_older_form(known: Record, config: Config) -> bool:
    """Whether the record is of the same configuration, from before some of its fields came into being."""
    try:
        return config_from_json(known.config) == config
    except ValueError:
        return False


def _withdraw(folder: Path) -> None:
    """Take back a run that could not make its first step."""
    for name in (RUN_FILE, METRICS_FILE):
        (folder / name).unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def _take_up(experiment: Experiment, folder: Path, journal: Journal) -> int:
    """The step to go on from: that of the last checkpoint, to which everything is put back, or the first."""
    path = folder / CHECKPOINT_FILE
    if not path.exists():
        journal.cut(0)
        return 0
    state = load_checkpoint(path)
    if state.get("hash") not in (hash_of(experiment.config), read_record(folder).hash):
        raise failure("folder", "hold a checkpoint of this very run", f"another in {path}")
    journal.cut(state["n_bytes"])
    experiment.load_state_dict(state["experiment"])
    return int(state["step"])


def _save(experiment: Experiment, folder: Path, journal: Journal, step: int) -> None:
    """A checkpoint of what the loop has found to be well."""
    journal.sync()  # the checkpoint must not know more than the disk does
    state = {
        "hash": hash_of(experiment.config),
        "step": step,
        "n_bytes": journal.n_bytes,
        "shape": experiment.data.shape,
        "experiment": experiment.state_dict(),
    }
    save_checkpoint(folder / CHECKPOINT_FILE, state)
