"""Entries for TensorBoard."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import torch

SCALARS = (
    "loss",
    "lr",
    "accuracy",
    "test_loss",
    "attack_success",
    "bad_weight",
    "n_rejected",
    "residual",
    "memory_norm",
    "gap",
)


@final
class TensorBoard:
    """A watcher that writes what it is shown as TensorBoard's event files, into `tensorboard` in the run's folder.

    Needs the extra `holdfast[tensorboard]`. Taken up after a kill, steps that are made again replace what was written of them.

    Args:
        folder: the run's folder.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ValueError(
                f"`tensorboard` must be installed (pip install 'holdfast[tensorboard]'), got: {error}."
            ) from error
        self._make = SummaryWriter
        self._folder = str(Path(folder) / "tensorboard")
        self._writer: SummaryWriter | None = None

    def __call__(self, entry: Mapping[str, Any]) -> None:
        """Write one entry."""
        step = entry["step"]
        if self._writer is None:
            self._writer = self._make(self._folder, purge_step=step)
        write = self._writer.add_scalar
        for name in SCALARS:
            if entry.get(name) is not None:
                write(name, entry[name], step)
        for part, seconds in entry["seconds"].items():
            write(f"seconds/{part}", seconds, step)
        if "weights" in entry:
            self._writer.add_histogram("weights", torch.tensor(entry["weights"]), step)

    def close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            self._writer.close()
