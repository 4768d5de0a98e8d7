"""Writing to the folder of a data set: nothing unchecked ever bears a final name."""

import errno
import hashlib
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from tarfile import TarError
from typing import IO

from holdfast.errors import FetchError
from holdfast.lab.data._content import CHUNK
from holdfast.lab.data._description import DataFile
from holdfast.lab.data._source import WrongBytesError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def place(chunks: Iterable[bytes], file: DataFile, folder: Path) -> None:
    """Writes the content of a file under a passing name, checks it, and only then gives it its own.

    Raises:
        WrongBytesError: if the checksum is not the file's; nothing is left behind, and an older copy stays as it was.
        FetchError: if the folder cannot hold it; the same.
    """
    new = folder / f"{file.name}.new"
    hasher = hashlib.new(file.algorithm, usedforsecurity=False)
    try:
        with storing(folder), new.open("wb", buffering=0) as target:
            for chunk in chunks:
                hasher.update(chunk)
                write_all(target, chunk)
            os.fsync(target.fileno())
        found = f"{file.algorithm}:{hasher.hexdigest()}"
        if found != file.digest:
            raise WrongBytesError(f"{file.name} has {found}, expected {file.digest}")
        with storing(folder):
            new.replace(folder / file.name)
    finally:
        with suppress(OSError):
            new.unlink()


def chunks_of(stream: IO[bytes], name: str) -> Iterator[bytes]:
    """The rest of a compressed stream in chunks; what it cannot unpack is the source's fault and not the folder's."""
    while True:
        try:
            chunk = stream.read(CHUNK)
        except (EOFError, OSError, TarError, zlib.error) as error:
            raise WrongBytesError(f"{name} is damaged ({str(error).rstrip('.')})") from error
        if not chunk:
            return
        yield chunk


@contextmanager
def storing(folder: Path) -> Iterator[None]:
    """Turns what the operating system says against the folder into one sentence that names it."""
    try:
        yield
    except FetchError:
        raise
    except OSError as error:
        reason = error.strerror or error
        raise FetchError(
            f"`data_dir` must be a folder that has room and can be written to, got {folder} ({reason})."
        ) from error


def is_full(error: FetchError) -> bool:
    """Whether it was for want of room."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in _FULL


def write_all(file: FileIO, chunk: bytes) -> None:
    """Writes without a buffer, so that a process that is killed leaves all it received; such a write may be a partial one."""
    rest = memoryview(chunk)
    while rest:
        rest = rest[file.write(rest) :]
