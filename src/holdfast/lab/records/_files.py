"""Atomic replacement of files."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file, flush it to the disk and rename it to `path`.

    After a kill or on a full disk, `path` has its old or its new content. A killed process leaves
    its temporary file, which the next one overwrites. Only one process may write to a path.
    """
    new = path.with_name(f".{path.name}.new")
    try:
        write(new)
        with new.open("rb+") as file:
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        # The error of a full disk does not name the file.
        if isinstance(error, OSError) and error.filename is None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Flush the renaming to the disk, where the system allows to open a folder."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
