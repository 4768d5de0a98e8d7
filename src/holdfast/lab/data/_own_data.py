"""Data sets of the user's: a folder with four `.npy` files."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch
from torch import Tensor

from holdfast.checks import check_count, failure
from holdfast.errors import MissingDataError
from holdfast.lab.data._data_set import DataSet, Images
from holdfast.lab.data._npy import parse_npy

OWN_FILES = ("x_train.npy", "y_train.npy", "x_test.npy", "y_test.npy")
"""Samples [n, ...] and labels [n]."""

FLOATS = (torch.float16, torch.float32, torch.float64)


@final
@dataclass(frozen=True, kw_only=True)
class OwnData:
    """What a configuration keeps of a data set of the user's.

    Args:
        folder: where the files were when the run began.
        digest: SHA-256 of the files, one after the other.
        n_train: number of training samples.
        n_test: number of test samples.
        shape: of a sample; gray images have one channel.
        n_classes: number of classes.
        are_bytes: whether the values are bytes, which are scaled to [0, 1].
    """

    folder: str
    digest: str
    n_train: int
    n_test: int
    shape: tuple[int, ...]
    n_classes: int
    are_bytes: bool

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))  # JSON makes it a list
        for name in ("n_train", "n_test"):
            check_count(name, getattr(self, name), at_least=1)
        check_count("n_classes", self.n_classes, at_least=2)

    @property
    def title(self) -> str:
        """The folder, for display."""
        return self.folder

    @property
    def classes(self) -> tuple[str, ...]:
        """The labels."""
        return tuple(map(str, range(self.n_classes)))


def own_data(folder: str | os.PathLike[str]) -> OwnData:
    """Read a data set of the user's, and return what a configuration keeps of it.

    Raises:
        MissingDataError: if a file is missing.
        ValueError: if a file is damaged, or the files do not fit together.
    """
    data, digest = read_own_data(Path(folder))
    return OwnData(
        folder=os.path.normpath(folder),
        digest=digest,
        n_train=len(data.train),
        n_test=len(data.test),
        shape=data.shape,
        n_classes=data.n_classes,
        are_bytes=data.train.images.dtype == torch.uint8,
    )


def load_own_data(known: OwnData, *, data_dir: str | os.PathLike[str] | None = None) -> DataSet:
    """Load a data set of the user's from its folder, or from `data_dir` if it has moved there.

    Raises:
        MissingDataError: if a file is missing.
        ValueError: if the files have changed.
    """
    folder = locate_own_data(known, data_dir=data_dir)
    data, digest = read_own_data(folder)
    if digest != known.digest:
        needed = f"hold the data of this run (SHA-256 {known.digest[:8]}...)"
        raise failure("data", needed, f"{folder}, whose files have changed ({digest[:8]}...)")
    return data


def locate_own_data(known: OwnData, *, data_dir: str | os.PathLike[str] | None = None) -> Path:
    """The folder of the data: that of the configuration, or else `data_dir`."""
    folders = [Path(known.folder), *([] if data_dir is None else [Path(data_dir)])]
    found = next(
        (one for one in folders if all((one / name).is_file() for name in OWN_FILES)), None
    )
    if found is None:
        raise MissingDataError(
            f"`data` must hold {', '.join(OWN_FILES)}, got not all of them in "
            f"{' or '.join(map(str, folders))}; if they have moved, name their folder by --data-dir."
        )
    return found


def read_own_data(folder: Path) -> tuple[DataSet, str]:
    """The data set in a folder, wholly in memory, and the checksum of its files."""
    hasher, tensors = hashlib.sha256(), []
    for name in OWN_FILES:
        try:
            content = bytearray((folder / name).read_bytes())
        except FileNotFoundError:
            listed = ", ".join(OWN_FILES)
            raise MissingDataError(
                f"`data` must hold {listed}, got no {name} in {folder}."
            ) from None
        hasher.update(content)
        tensors.append(parse_npy(content, folder / name))
    paths = [folder / name for name in OWN_FILES]
    x_train, x_test = (_samples(tensors[i], paths[i]) for i in (0, 2))
    y_train, y_test = (_labels(tensors[i], len(tensors[i - 1]), paths[i]) for i in (1, 3))
    if (x_train.shape[1:], x_train.dtype) != (x_test.shape[1:], x_test.dtype):
        needed = f"hold samples like those of {paths[0]}, {_describe(tensors[0])}"
        raise failure("data", needed, f"{_describe(tensors[2])} in {paths[2]}")
    n_classes = _n_classes(y_train, paths[1])
    if int(y_test.max()) >= n_classes:
        needed = f"have labels below {n_classes}, as the training samples have"
        raise failure("data", needed, f"{int(y_test.max())} in {paths[3]}")
    train, test = Images(x_train, y_train), Images(x_test, y_test)
    classes = tuple(map(str, range(n_classes)))
    return DataSet(folder.name, train, test, classes, *_moments(train)), hasher.hexdigest()


def _samples(values: Tensor, path: Path) -> Tensor:
    """Bytes, or finite float32 numbers."""
    if values.dtype != torch.uint8 and values.dtype not in FLOATS:
        raise failure("data", "hold bytes (uint8) or floats", f"{_describe(values)} in {path}")
    if values.ndim < 2 or 0 in values.shape:
        needed = "hold samples of shape [n, ...], none of it zero"
        raise failure("data", needed, f"{_describe(values)} in {path}")
    if values.dtype == torch.uint8:
        return values
    values = values.to(torch.float32)
    n_bad = int((~torch.isfinite(values)).sum())
    if n_bad:
        got = f"{n_bad:,} that are NaN, infinite or beyond float32 in {path}"
        raise failure("data", "hold finite numbers", got)
    return values


def _labels(values: Tensor, n: int, path: Path) -> Tensor:
    if values.is_floating_point() or values.shape != (n,):
        needed = f"hold integer labels of shape [{n}], one per sample"
        raise failure("data", needed, f"{_describe(values)} in {path}")
    values = values.to(torch.int64)
    if int(values.min()) < 0:
        raise failure("data", "have labels of at least 0", f"{int(values.min())} in {path}")
    return values


def _n_classes(labels: Tensor, path: Path) -> int:
    found = labels.unique()
    n = int(found[-1]) + 1
    if n < 2:
        raise failure("data", "have two classes or more", f"one in {path}")
    if len(found) < n:
        empty = int((found != torch.arange(len(found))).nonzero()[0])
        needed = f"have samples of every class from 0 to {n - 1}, the largest label"
        raise failure("data", needed, f"none of class {empty} in {path}")
    return n


def _moments(train: Images) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation per channel of images, per feature of tables."""
    channels = train.scaled().double().transpose(0, 1).flatten(1)
    means, deviations = channels.mean(1), channels.std(1, correction=0)
    # That of a constant is 0 but for rounding, which must not be divided by.
    constant = deviations <= 1e-9 * means.abs()
    return tuple(means.tolist()), tuple(deviations.masked_fill(constant, 1.0).tolist())


def _describe(values: Tensor) -> str:
    return f"{str(values.dtype).removeprefix('torch.')} {list(values.shape)}"
