"""TensorBoard files."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import torch

from holdfast.errors import DISTRIBUTION

SCALARS = (
    *("loss", "lr", "accuracy", "test_loss", "attack_success", "bad_weight"),
    *("n_rejected", "residual", "memory_norm", "gap"),
)


def check_tensorboard() -> None:
    """Check that the extra `tensorboard` is installed."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f"`tensorboard` must be installed (pip install '{DISTRIBUTION}[tensorboard]'), "
            f"got: {error}."
        ) from error


@final
class TensorBoard:
    """A watcher that writes TensorBoard files into `tensorboard` in the run's folder.

    Needs the extra `tensorboard`. After a resume, repeated steps replace the old ones.

    Args:
        folder: the run's folder.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        check_tensorboard()
        from torch.utils.tensorboard import SummaryWriter

        self._make = SummaryWriter
        self._folder = str(Path(folder) / "tensorboard")
        self._writer: SummaryWriter | None = None

    def __call__(self, entry: Mapping[str, Any]) -> None:
        """Write one entry."""
        step = entry["step"]
        if self._writer is None:
            self._writer = self._make(self._folder, purge_step=step)
        scalars = {name: entry.get(name) for name in SCALARS}
        if "suspects" in entry:
            scalars["n_suspects"] = len(entry["suspects"])
        scalars |= {f"seconds/{part}": seconds for part, seconds in entry["seconds"].items()}
        for name, value in scalars.items():
            if value is not None:
                self._writer.add_scalar(name, value, step)
        weights = [weight for weight in entry.get("weights", ()) if weight is not None]
        if weights:
            self._writer.add_histogram("weights", torch.tensor(weights), step)

    def close(self) -> None:
        """Write what is buffered."""
        if self._writer is not None:
            self._writer.close()
