"""Reading data sets that are on this machine."""

from pathlib import Path
from typing import Literal

from holdfast.checks import failure
from holdfast.errors import MissingDataError
from holdfast.lab.data._cifar import read_batches
from holdfast.lab.data._data_set import DataSet, Images
from holdfast.lab.data._data_sets import EMBEDDED, DataDescription, describe
from holdfast.lab.data._idx import read_idx_folder
from holdfast.lab.data._locate import StrPath, find_file, locate, places


def load(name: str, *, data_dir: StrPath | None = None) -> DataSet:
    """Loads a data set from the folder that :func:`locate` finds, without using the network.

    All images are kept in memory as bytes: 55 MB for MNIST and Fashion-MNIST, 184 MB for CIFAR-10.
    Sizes are checked; checksums are not (see :func:`verify`).

    Raises:
        MissingDataError: if no folder holds it; the message ends with the command that fetches it.
        ValueError: if there is no such data set, or its files are damaged.

    Example:
        >>> data = load("fashion-mnist-slice")
        >>> data.test.images.shape, data.classes[data.test.labels[0]]
        (torch.Size([2000, 28, 28]), 'Ankle boot')
    """
    description, folder = describe(name), locate(name, data_dir=data_dir)
    if folder is None:
        raise MissingDataError(_missing(description, places(description, data_dir)))
    train, test = _read(description, folder)
    sizes = (description.n_train, description.n_test)
    for split, images, n in zip(("training", "test"), (train, test), sizes, strict=True):
        if len(images) != n:
            expected = f"hold the {n} {split} images of {name}"
            raise failure("data_dir", expected, f"{len(images)} in {folder}")
    return DataSet(name, train, test, description.classes, description.mean, description.deviation)


def fashion_mnist_slice(split: Literal["train", "test"]) -> Images:
    """The bundled slice of Fashion-MNIST, which needs no download.

    The first 600 training images or the first 200 test images of each class, in the original order.

    Example:
        >>> from holdfast.lab.data import CLASSES
        >>> test = fashion_mnist_slice("test")
        >>> test.images.shape, CLASSES[test.labels[0]]
        (torch.Size([2000, 28, 28]), 'Ankle boot')
    """
    return read_idx_folder(EMBEDDED, split)


def _read(description: DataDescription, folder: Path) -> tuple[Images, Images]:
    if description.form == "idx":
        return read_idx_folder(folder, "train"), read_idx_folder(folder, "test")
    found = [find_file(description, folder, file) for file in description.files]
    *train, test = [path for path in found if path is not None]
    return read_batches(train), read_batches([test])


def _missing(description: DataDescription, folders: list[Path]) -> str:
    first, *others = (file.name for file in description.files)
    return (
        f"`data_dir` must hold {description.name} ({first} and {len(others)} more files, "
        f"each gzipped or not), got none of it in {', '.join(map(str, folders))}; "
        f"to fetch it, run: holdfast data fetch {description.name}"
    )
