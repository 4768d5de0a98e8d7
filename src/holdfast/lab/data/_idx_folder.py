"""A data set of the MNIST family: four IDX files in a folder."""

from pathlib import Path
from typing import Literal

import torch

from holdfast.checks import failure
from holdfast.lab.data._content import find_content
from holdfast.lab.data._idx import read_idx
from holdfast.lab.data._images import Images


def standard_names(split: Literal["train", "test"]) -> tuple[str, str]:
    """The names, without `.gz`, of the files with the images and with the labels."""
    if split not in ("train", "test"):
        raise failure("split", "be 'train' or 'test'", repr(split))
    prefix = "train" if split == "train" else "t10k"
    return f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"


def read_idx_folder(folder: Path, split: Literal["train", "test"]) -> Images:
    """The images of one split, from files under their standard names, each gzipped or not."""
    images, labels = (read_idx(_find(folder, name)) for name in standard_names(split))
    return Images(images, labels.to(torch.int64))


def _find(folder: Path, name: str) -> Path:
    found = find_content(folder, name)
    if found is None:
        raise FileNotFoundError(f"`folder` must hold {name}.gz or {name}, got {folder}.")
    return found
