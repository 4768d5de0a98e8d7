"""Where a data set lies on this machine."""

import os
from pathlib import Path

from holdfast.lab.data._content import find_content, problem
from holdfast.lab.data._data_sets import describe
from holdfast.lab.data._description import DataDescription, DataFile

StrPath = str | os.PathLike[str]


def locate(name: str, *, data_dir: StrPath | None = None) -> Path | None:
    """The first folder that holds all files of a data set, or None; the network is not touched.

    Looked at in this order: `NAME` in `data_dir` and `data_dir` itself (the environment's HOLDFAST_DATA if `data_dir` is not
    given), `data/NAME` in the user's cache, the system's folders. A slice that comes with the library is always found there.
    MNIST and Fashion-MNIST have files of the same names, so the smallest file must also have the right checksum.

    Example:
        >>> locate("fashion-mnist-slice").name
        'embedded'
    """
    return find_folder(describe(name), data_dir)


def verify(name: str, folder: StrPath) -> list[str]:
    """What is wrong with the files of a data set in a folder, by their checksums: a line a file, none if all are right.

    Example:
        >>> verify("fashion-mnist-slice", locate("fashion-mnist-slice"))
        []
    """
    return problems(describe(name), Path(folder))


def find_folder(description: DataDescription, data_dir: StrPath | None) -> Path | None:
    """The first of the places that holds the data set."""
    return next(
        (folder for folder in places(description, data_dir) if holds(description, folder)), None
    )


def places(description: DataDescription, data_dir: StrPath | None) -> list[Path]:
    """The folders to look at, in order."""
    if description.is_bundled:
        return list(description.system)
    given = _given_folder(data_dir)
    # The subfolder goes first, because it alone is written to: a bad copy in the user's own folder must not hide the fetched one.
    named = [] if given is None else [given / description.name, given]
    return [*named, _cache_folder(description.name), *description.system]


def target_folder(description: DataDescription, data_dir: StrPath | None) -> Path:
    """The folder that a fetched copy is written to."""
    given = _given_folder(data_dir)
    return _cache_folder(description.name) if given is None else given / description.name


def holds(description: DataDescription, folder: Path) -> bool:
    """Whether all files are there, and the signature is right where there is one."""
    paths = {file: find_file(description, folder, file) for file in description.files}
    if None in paths.values():
        return False
    return not any(
        problem(file, path) for file, path in paths.items() if file.name == description.signature
    )


def find_file(description: DataDescription, folder: Path, file: DataFile) -> Path | None:
    """Where a file lies in the folder or its subfolder, gzipped or not."""
    found = find_content(folder, file.name)
    return (
        found
        if found or not description.subfolder
        else find_content(folder / description.subfolder, file.name)
    )


def problems(description: DataDescription, folder: Path) -> list[str]:
    """What is wrong with the copy in a folder, a line a file."""
    found = [problem(file, find_file(description, folder, file)) for file in description.files]
    return [line for line in found if line is not None]


def _given_folder(data_dir: StrPath | None) -> Path | None:
    given = data_dir if data_dir is not None else os.environ.get("HOLDFAST_DATA")
    return Path(given).expanduser() if given else None


def _cache_folder(name: str) -> Path:
    import platformdirs  # of the extra `lab`; the slice that comes with the library must load without it

    return Path(platformdirs.user_cache_dir("holdfast")) / "data" / name
