"""Cuts the slice of Fashion-MNIST that comes with the library: `python -m holdfast.lab.data._embed SOURCE TARGET`."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import torch
from torch import Tensor

from holdfast.checks import failure
from holdfast.lab.data._fashion_mnist import CLASSES, load_fashion_mnist
from holdfast.lab.data._idx import write_idx
from holdfast.lab.data._idx_folder import standard_names

SIZES: Final[dict[Literal["train", "test"], int]] = {"train": 600, "test": 200}
"""How many images of each class the slice holds."""


def embed(
    source_folder: str | os.PathLike[str], target_folder: str | os.PathLike[str]
) -> list[Path]:
    """Writes the first images of each class, in their original order, under the standard names; returns the four paths."""
    target = Path(target_folder)
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for split, n_per_class in SIZES.items():
        full = load_fashion_mnist(source_folder, split)
        kept = _first_of_each_class(full.labels, n_per_class)
        parts = (full.images[kept], full.labels[kept].to(torch.uint8))
        for name, part in zip(standard_names(split), parts, strict=True):
            path = target / f"{name}.gz"
            write_idx(path, part)
            written.append(path)
    return written


def main(arguments: Sequence[str] | None = None) -> None:
    """Cuts the slice and names each file with its size, a line a file."""
    parser = argparse.ArgumentParser(
        description="Cut the slice of Fashion-MNIST that comes with the library."
    )
    parser.add_argument("source", type=Path, help="folder with the four files of the full set")
    parser.add_argument("target", type=Path, help="folder for the four files of the slice")
    given = parser.parse_args(arguments)
    for path in embed(given.source, given.target):
        sys.stdout.write(f"{path.name}: {path.stat().st_size} bytes\n")


def _first_of_each_class(labels: Tensor, n_per_class: int) -> Tensor:
    """The increasing indices of the first `n_per_class` of each class in `labels` [N]."""
    kept = []
    for label, name in enumerate(CLASSES):
        places = (labels == label).nonzero().flatten()
        if len(places) < n_per_class:
            raise failure("source_folder", f"hold at least {n_per_class} of {name}", len(places))
        kept.append(places[:n_per_class])
    return torch.cat(kept).sort().values


if __name__ == "__main__":
    main()
