"""Reading a data set that is on this machine."""

from pathlib import Path

from holdfast.checks import failure
from holdfast.errors import MissingDataError
from holdfast.lab.data._cifar import read_batches
from holdfast.lab.data._data_set import DataSet
from holdfast.lab.data._data_sets import describe
from holdfast.lab.data._description import DataDescription
from holdfast.lab.data._idx_folder import read_idx_folder
from holdfast.lab.data._images import Images
from holdfast.lab.data._locate import StrPath, find_file, find_folder, places


def load(name: str, *, data_dir: StrPath | None = None) -> DataSet:
    """A data set from the folder that :func:`locate` finds; the network is never touched.

    The images are bytes in memory, whole: 55 MB for MNIST and Fashion-MNIST, 184 MB for CIFAR-10. Sizes are checked, checksums are not
    (:func:`verify` does).

    Raises:
        MissingDataError: if it is in none of the folders; the message ends with the command that fetches it.
        ValueError: if there is no such data set, or its files are damaged.

    Example:
        >>> data = load("fashion-mnist-slice")
        >>> data.test.images.shape, data.classes[data.test.labels[0]]
        (torch.Size([2000, 28, 28]), 'Ankle boot')
    """
    return load_described(describe(name), data_dir=data_dir)


def load_described(description: DataDescription, *, data_dir: StrPath | None = None) -> DataSet:
    """As :func:`load`, for a data set by its description."""
    folder = find_folder(description, data_dir)
    if folder is None:
        raise MissingDataError(_missing(description, places(description, data_dir)))
    train, test = _read(description, folder)
    for split, images, n in (
        ("training", train, description.n_train),
        ("test", test, description.n_test),
    ):
        if len(images) != n:
            raise failure(
                "data_dir",
                f"hold the {n} {split} images of {description.name}",
                f"{len(images)} in {folder}",
            )
    return DataSet(
        description.name, train, test, description.classes, description.mean, description.deviation
    )


def _read(description: DataDescription, folder: Path) -> tuple[Images, Images]:
    """The training images and the test images."""
    if description.form == "idx":
        return read_idx_folder(folder, "train"), read_idx_folder(folder, "test")
    found = [find_file(description, folder, file) for file in description.files]
    *train, test = [path for path in found if path is not None]
    return read_batches(train), read_batches([test])


def _missing(description: DataDescription, folders: list[Path]) -> str:
    first, *others = (file.name for file in description.files)
    looked = ", ".join(map(str, folders))
    return (
        f"`data_dir` must hold {description.name} ({first} and {len(others)} more files, each gzipped or not), "
        f"got none of it in {looked}; to fetch it, run: holdfast data fetch {description.name}"
    )
