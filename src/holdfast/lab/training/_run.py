"""A run, from its start or last checkpoint to its end."""

import io
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from holdfast.checks import check_nonnegative
from holdfast.errors import DivergedError, NonFiniteMemoryError, NonFiniteRowsError
from holdfast.lab.config import Config, config_from_json, config_to_json, hash_of
from holdfast.lab.data import load, load_own_data
from holdfast.lab.own_models import architecture
from holdfast.lab.records import (
    METRICS_FILE,
    RUN_FILE,
    Journal,
    Record,
    create_record,
    extend_record,
    machine,
    read_record,
    save_checkpoint,
    versions,
)
from holdfast.lab.training._averaging import averaged
from holdfast.lab.training._crew import Alone, Crew
from holdfast.lab.training._experiment import Experiment
from holdfast.lab.training._loop import training
from holdfast.lab.training._own_checkpoint import (
    CHECKPOINT_FILE,
    read_own_checkpoint,
    refusing_misfits,
    restore,
)
from holdfast.lab.training._own_record import read_own, without_evaluation
from holdfast.lab.training._tensorboard import TensorBoard

if TYPE_CHECKING:
    from holdfast.distributed import Ranks

Watcher = Callable[[Mapping[str, Any]], None]
"""Receives every new entry after it was written to the record."""


def run(
    config: Config,
    folder: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    device: torch.device | str = "cpu",
    checkpoint_seconds: float = 30.0,
    tensorboard: bool = False,
    on_start: Callable[[int], None] = lambda _: None,
    watchers: Sequence[Watcher] = (),
    stop: Callable[[], bool] = lambda: False,
    command: Sequence[str] = (),
    ranks: "Ranks | None" = None,
) -> Record:
    """Train a configuration, with its record and checkpoints in the folder.

    A run in the folder that has ended is returned unchanged. One that was stopped or killed is
    resumed after its last checkpoint; its record will be equal, except timings, to that of an
    uninterrupted run. So is one that has finished with fewer steps, unless its schedule depends on
    the number of steps.

    Args:
        config: the configuration.
        folder: the run's own folder; created if missing.
        data_dir: another folder to search for the data set.
        device: where to compute.
        checkpoint_seconds: time between checkpoints; 0 for one after each step. There is always
            one at the end.
        tensorboard: whether to write TensorBoard files into the folder.
        on_start: called with the number of steps made so far, before the next one.
        watchers: called with every new entry.
        stop: called after each step; if it returns True, the run stops with a checkpoint.
        command: the command line, for the record.
        ranks: the ranks that compute one row each; this is the first of them, and the others call
            :func:`follow`.

    Returns:
        The record. Its `end` is "finished", "diverged" (with the reason; the last checkpoint is
        from before) or, if the run was stopped, None.

    Raises:
        ValueError: if the folder holds another run, or one that cannot be extended.
        MissingDataError: if the data set is missing.
        RunInUseError: if another process trains this run.
        OSError: if a file cannot be written.
    """
    folder, device = Path(folder), torch.device(device)
    check_nonnegative("checkpoint_seconds", checkpoint_seconds)
    crew: Crew = Alone() if ranks is None else ranks
    known = crew.together(lambda: read_own(config, folder))
    if crew.any(known is not None and known.end is not None):
        return read_record(folder)
    experiment = crew.together(lambda: _experiment(config, data_dir, device, ranks))
    with ExitStack() as stack:

        def begin() -> tuple[Journal, Record | None, int]:
            nonlocal watchers
            if tensorboard:
                watchers = [*watchers, stack.enter_context(closing(TensorBoard(folder)))]
            folder.mkdir(parents=True, exist_ok=True)
            journal = stack.enter_context(Journal(folder))
            return journal, *_take_up(experiment, folder, journal, command)

        journal, known, step = crew.together(begin)
        if ranks is not None:
            _share_start(experiment, ranks, step)
        if known is not None and known.end is not None:
            return known
        on_start(step)
        try:
            _train(experiment, folder, journal, step, checkpoint_seconds, watchers, stop)
        except ValueError:  # parts that do not fit together, which shows in the first step
            if known is None and journal.n_bytes == 0:
                _withdraw(folder)
            raise
        journal.sync()
    return read_record(folder)


def _take_up(
    experiment: Experiment, folder: Path, journal: Journal, command: Sequence[str]
) -> tuple[Record | None, int]:
    """The record that is in the folder, or None and a new one, and the step from which to go on."""
    config, ranks = experiment.config, experiment.ranks
    known = read_own(config, folder)  # again: another process may have used the folder
    if known is not None and known.end is not None:
        return known, config.n_steps
    if known is None:
        where: dict[str, Any] = {"versions": versions(), "machine": machine(experiment.device)}
        if ranks is not None:
            where["ranks"] = [{"host": one.host, "device": one.device} for one in ranks.members]
        create_record(folder, config_to_json(config), **where, command=list(command))
    elif known.hash != hash_of(config):
        extend_record(folder, config_to_json(config), command=list(command))
    return known, _restore(experiment, folder, journal)


def _train(
    experiment: Experiment,
    folder: Path,
    journal: Journal,
    step: int,
    checkpoint_seconds: float,
    watchers: Sequence[Watcher],
    stop: Callable[[], bool],
) -> None:
    """Train from `step` on, until the end or until `stop`; the record says which."""
    n_steps, ranks = experiment.config.n_steps, experiment.ranks
    crew: Crew = Alone() if ranks is None else ranks
    saved = time.monotonic()
    try:
        for entry in training(experiment, step):
            step = entry["step"]
            journal.append(entry)
            for watch in watchers:
                watch(entry)
            stops = crew.any(stop()) and step < n_steps
            if stops or time.monotonic() - saved >= checkpoint_seconds:
                _save(experiment, folder, journal, step)
                saved = time.monotonic()
            if stops:
                return
        _save(experiment, folder, journal, step)
        journal.append({"end": "finished", "step": step})
    except (DivergedError, NonFiniteRowsError, NonFiniteMemoryError) as error:
        reason = f"After step {step}: {error}"
        journal.append({"end": "diverged", "step": step, "reason": reason})


def follow(
    config: Config,
    ranks: "Ranks",
    *,
    data_dir: str | os.PathLike[str] | None = None,
    device: torch.device | str = "cpu",
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Take part in a run whose record rank 0 keeps, by :func:`run` with the same arguments."""
    ranks.together(lambda: None)
    if ranks.any(False):  # the run has ended
        return
    experiment = ranks.together(lambda: _experiment(config, data_dir, torch.device(device), ranks))
    ranks.together(lambda: None)
    step = _share_start(experiment, ranks, 0)
    with suppress(DivergedError, NonFiniteRowsError, NonFiniteMemoryError):  # as on rank 0
        for entry in training(experiment, step):
            if ranks.any(stop()) and entry["step"] < config.n_steps:
                return


def resume(folder: str | os.PathLike[str], *, n_steps: int | None = None, **options: Any) -> Record:
    """Resume the run in a folder, up to another step if given; options as in :func:`run`."""
    config = config_from_json(read_record(Path(folder)).config)
    return run(config if n_steps is None else replace(config, n_steps=n_steps), folder, **options)


def trained_model(folder: str | os.PathLike[str]) -> nn.Module:
    """The model of a run at its last checkpoint, in eval mode: its mean over steps, if any."""
    folder = Path(folder)
    known = read_record(folder)
    config, path = config_from_json(known.config), folder / CHECKPOINT_FILE
    if not path.exists():
        raise FileNotFoundError(
            f"`folder` must hold a checkpoint ({CHECKPOINT_FILE}), got {folder}, "
            "whose run ended before its first."
        )
    state = read_own_checkpoint(known, config)
    sizes: dict[str, Any] = {"shape": tuple(state["shape"]), "n_classes": config.n_classes}
    model = architecture(config.model)(**sizes, generator=torch.Generator())
    with refusing_misfits(path):
        if config.average:
            average = averaged(model, config.average)
            average.load_state_dict(state["experiment"]["average"])
            model = average.module
        else:
            model.load_state_dict(state["experiment"]["model"])
    return model.eval()


def _experiment(
    config: Config,
    data_dir: str | os.PathLike[str] | None,
    device: torch.device,
    ranks: "Ranks | None",
) -> Experiment:
    if config.own_data is None:
        data = load(config.data, data_dir=data_dir)
    else:
        data = load_own_data(config.own_data, data_dir=data_dir)
    return Experiment(config, data, device, ranks=ranks)


def _share_start(experiment: Experiment, ranks: "Ranks", step: int) -> int:
    """Give all ranks the step and the state of rank 0, where the checkpoint is; returns the
    step.
    """
    buffer = io.BytesIO()
    if ranks.is_first:
        torch.save(experiment.state_dict(), buffer)
    step, content = ranks.from_first((step, buffer.getvalue()))
    if not ranks.is_first:
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        experiment.load_state_dict(state)
    return step


def _withdraw(folder: Path) -> None:
    """Remove a run that failed in its first step."""
    for name in (RUN_FILE, METRICS_FILE):
        (folder / name).unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def _restore(experiment: Experiment, folder: Path, journal: Journal) -> int:
    """Restore the last checkpoint, if any, and return its step."""
    path = folder / CHECKPOINT_FILE
    if not path.exists():
        journal.cut(0)
        return 0
    config, known = experiment.config, read_record(folder)
    state = read_own_checkpoint(known, config)
    journal.cut(state["n_bytes"])
    restore(experiment, state["experiment"], path)
    step = int(state["step"])
    # The last step of the shorter run was evaluated, which that of a longer one may not be.
    last = known.entries[step - 1] if 0 < step <= len(known.entries) else {}
    is_due = step % config.evaluate_every == 0 or step == config.n_steps
    if "accuracy" in last and not is_due:
        journal.amend(without_evaluation(last))
    return step


def _save(experiment: Experiment, folder: Path, journal: Journal, step: int) -> None:
    """Write a checkpoint."""
    journal.sync()  # the checkpoint must not refer to entries that a power cut could lose
    state = {
        "hash": hash_of(experiment.config),
        "step": step,
        "n_bytes": journal.n_bytes,
        "shape": experiment.data.shape,
        "experiment": experiment.state_dict(),
    }
    save_checkpoint(folder / CHECKPOINT_FILE, state)
