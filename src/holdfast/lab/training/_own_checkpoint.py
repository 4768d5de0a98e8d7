"""The checkpoint of a run, which may be damaged, or come from someone else."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.optim import Optimizer

from holdfast.checks import failure
from holdfast.lab.config import Config
from holdfast.lab.records import Record, load_checkpoint
from holdfast.lab.training._experiment import Experiment

CHECKPOINT_FILE: Final = "checkpoint.pt"
"""The file in a run's folder from which the run is resumed."""

LARGEST_SAMPLE: Final = 2**24
"""Entries of a sample, whose shape decides how large a model becomes; far above all data sets."""


def read_own_checkpoint(known: Record, config: Config) -> dict[str, Any]:
    """Read the checkpoint of a run, or of the shorter one that it extends.

    Args:
        known: the record of the run.
        config: its configuration.

    Raises:
        ValueError: if it is damaged, or that of another run.
    """
    path = known.folder / CHECKPOINT_FILE
    state, shorter = load_checkpoint(path), known.run.get("extended_from", [])
    if state.get("hash") not in [known.hash, *(one["hash"] for one in shorter)]:
        raise failure("folder", "hold a checkpoint of this very run", f"another in {path}")
    counts, shape = (state.get("step"), state.get("n_bytes")), state.get("shape")
    is_whole = (
        all(type(count) is int and count >= 0 for count in counts)
        and state["step"] <= config.n_steps
        and isinstance(shape, (list, tuple))
        and all(type(side) is int and side >= 1 for side in shape)
        and prod(shape) <= LARGEST_SAMPLE
        and isinstance(state.get("experiment"), dict)
        and isinstance(state["experiment"].get("model"), dict)
    )
    if not is_whole:
        raise failure("folder", "hold a checkpoint as it was written", path)
    return state


def restore(experiment: Experiment, state: dict[str, Any], path: Path) -> None:
    """Restore the experiment from its part of a checkpoint, which was read from `path`."""
    optimizer = experiment.optimizer.optimizer
    settings = _settings(optimizer)
    with refusing_misfits(path):
        experiment.load_state_dict(state)
        _check_optimizer(optimizer, settings)


@contextmanager
def refusing_misfits(path: Path) -> Iterator[None]:
    """Raise ValueError if the content of the checkpoint does not fit the model or its optimizer."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        got = f"{path} ({str(error).partition(chr(10))[0]})"
        raise failure("folder", "hold a checkpoint that fits its configuration", got) from error


def _settings(optimizer: Optimizer) -> list[dict[str, Any]]:
    """What a configuration says of each group; the learning rate is set before every step."""
    return [
        {key: value for key, value in group.items() if key not in ("params", "lr")}
        for group in optimizer.param_groups
    ]


def _check_optimizer(optimizer: Optimizer, settings: list[dict[str, Any]]) -> None:
    """Check what torch's optimizers load without a check, and fail with in their next step."""
    fits = _settings(optimizer) == settings
    fits = fits and len({frozenset(state) for state in optimizer.state.values()}) <= 1
    for parameter, state in optimizer.state.items():
        fits = fits and all(_is_state_of(parameter, value) for value in state.values())
    if not fits:
        raise ValueError("its optimizer has another state")


def _is_state_of(parameter: Tensor, value: object) -> bool:
    """Whether an optimizer may keep this for the parameter: a number, or a tensor of its shape."""
    if not isinstance(value, Tensor):
        return value is None or isinstance(value, (int, float))
    return value.is_floating_point() and value.shape in ((), parameter.shape)
