"""Finding and checking data sets on this machine."""

import hashlib
import os
import zlib
from pathlib import Path

from holdfast.lab.data._content import CHUNK, find_content, open_content
from holdfast.lab.data._data_sets import DataDescription, DataFile, describe

StrPath = str | os.PathLike[str]


def locate(name: str, *, data_dir: StrPath | None = None) -> Path | None:
    """The first folder that holds all files of a data set, or None; the network is not used.

    The search order is `NAME` in `data_dir`, `data_dir` itself (both in the environment's
    HOLDFAST_DATA if `data_dir` is None), `data/NAME` in the user's cache, the system's folders. The
    bundled slice is always found in the package. MNIST and Fashion-MNIST have the same file names,
    so the checksum of the smallest file must also be right.

    Example:
        >>> locate("fashion-mnist-slice").name
        'embedded'
    """
    description = describe(name)
    folders = places(description, data_dir)
    return next((folder for folder in folders if holds(description, folder)), None)


def verify(name: str, folder: StrPath) -> list[str]:
    """Checks the files of a data set by checksum and returns one line per problem.

    Example:
        >>> verify("fashion-mnist-slice", locate("fashion-mnist-slice"))
        []
    """
    return list(problems(describe(name), Path(folder)).values())


def right_copy(description: DataDescription, data_dir: StrPath | None) -> Path | None:
    """The folder that :func:`locate` finds, if its checksums are right.

    A damaged copy hides those after it, unless it is in a system folder, which cannot be repaired.
    """
    for folder in places(description, data_dir):
        if holds(description, folder):
            if not problems(description, folder):
                return folder
            if folder not in description.system:
                return None
    return None


def places(description: DataDescription, data_dir: StrPath | None) -> list[Path]:
    """The folders to search, in order."""
    if description.is_bundled:
        return list(description.system)
    given = _given_folder(data_dir)
    # The subfolder goes first, because only it is written to: a damaged copy in the user's own
    # folder must not hide the fetched one.
    named = [] if given is None else [given / description.name, given]
    return [*named, _cache_folder(description.name), *description.system]


def target_folder(description: DataDescription, data_dir: StrPath | None) -> Path:
    """The folder to which a data set is fetched."""
    given = _given_folder(data_dir)
    return _cache_folder(description.name) if given is None else given / description.name


def holds(description: DataDescription, folder: Path) -> bool:
    """Whether the folder has all files, and the right signature if there is one."""
    paths = {file: find_file(description, folder, file) for file in description.files}
    signed = [file for file in description.files if file.name == description.signature]
    return None not in paths.values() and not any(_problem(file, paths[file]) for file in signed)


def find_file(description: DataDescription, folder: Path, file: DataFile) -> Path | None:
    """The path of a file in the folder or its subfolder, gzipped or not."""
    found = find_content(folder, file.name)
    if found is None and description.subfolder:
        return find_content(folder / description.subfolder, file.name)
    return found


def problems(description: DataDescription, folder: Path) -> dict[DataFile, str]:
    """One line for each file that is missing, unreadable or has a wrong checksum."""
    found = {
        file: _problem(file, find_file(description, folder, file)) for file in description.files
    }
    return {file: line for file, line in found.items() if line is not None}


def _problem(file: DataFile, path: Path | None) -> str | None:
    if path is None:
        return f"{file.name} is missing"
    hasher = hashlib.new(file.algorithm, usedforsecurity=False)
    try:
        with open_content(path) as stream:
            while chunk := stream.read(CHUNK):
                hasher.update(chunk)
    except (EOFError, OSError, zlib.error) as error:
        return f"{path.name} cannot be read ({str(error).rstrip('.')})"
    return file.mismatch(hasher.hexdigest(), path.name)


def _given_folder(data_dir: StrPath | None) -> Path | None:
    given = data_dir if data_dir is not None else os.environ.get("HOLDFAST_DATA")
    return Path(given).expanduser() if given else None


def _cache_folder(name: str) -> Path:
    import platformdirs  # in the extra `lab`; the bundled slice must load without it

    return Path(platformdirs.user_cache_dir("holdfast")) / "data" / name
