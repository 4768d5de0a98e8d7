"""Cuts the bundled slice from Fashion-MNIST: `python -m tests.lab.data.embed SOURCE TARGET`."""

import sys
from pathlib import Path
from typing import Final, Literal

import torch
from torch import Tensor

from holdfast.lab.data import CLASSES, read_idx_folder, write_idx
from holdfast.lab.data._idx import standard_names

SIZES: Final[dict[Literal["train", "test"], int]] = {"train": 600, "test": 200}
"""The number of images of each class in the slice."""


def embed(source: Path, target: Path) -> None:
    """Writes the first images of each class of the four files in `source`, in the same order."""
    target.mkdir(parents=True, exist_ok=True)
    for split, n_per_class in SIZES.items():
        full = read_idx_folder(source, split)
        kept = first_of_each_class(full.labels, n_per_class)
        parts = (full.images[kept], full.labels[kept].to(torch.uint8))
        for name, part in zip(standard_names(split), parts, strict=True):
            write_idx(target / f"{name}.gz", part)


def first_of_each_class(labels: Tensor, n_per_class: int) -> Tensor:
    """The increasing indices of the first `n_per_class` of each class in `labels` [N]."""
    own = [(labels == label).nonzero().flatten() for label in range(len(CLASSES))]
    assert min(map(len, own)) >= n_per_class
    return torch.cat([indices[:n_per_class] for indices in own]).sort().values


if __name__ == "__main__":
    embed(Path(sys.argv[1]), Path(sys.argv[2]))
