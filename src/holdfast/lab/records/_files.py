"""Files that are there wholly or not at all."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file beside `path`, make sure that it is on the disk, and put it in the place of `path`.

    Whatever happens in between (a kill, a full disk), `path` is what it was before or what it shall be. A process that is killed leaves its
    scratch file, which the next one writes over. One process at a time may write to a path.
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
        if (
            isinstance(error, OSError) and error.filename is None
        ):  # a full disk is told without the file's name
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make the new name itself survive a power cut, where the system lets a folder be opened."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        return
    finally:
        os.close(handle)
