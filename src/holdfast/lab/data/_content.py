"""The content of a file that may be gzipped: where it lies, what it holds, whether it is the right one."""

import gzip
import hashlib
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, cast

from holdfast.lab.data._description import DataFile

CHUNK: Final = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"


def find_content(folder: Path, name: str) -> Path | None:
    """The file `name` of the folder, or else `name.gz`; None if there is neither."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


@contextmanager
def open_content(path: Path) -> Iterator[IO[bytes]]:
    """The uncompressed content of a file. Whether it is gzipped is told by its first bytes, whatever its name."""
    with path.open("rb") as file:
        is_gzipped = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        file.seek(0)
        if not is_gzipped:
            yield file
            return
        with gzip.open(file) as unpacked:
            yield cast(IO[bytes], unpacked)


def digest(chunks: Iterable[bytes], algorithm: str) -> str:
    """The checksum of the bytes, in the form of :class:`DataFile`."""
    hasher = hashlib.new(algorithm, usedforsecurity=False)
    for chunk in chunks:
        hasher.update(chunk)
    return f"{algorithm}:{hasher.hexdigest()}"


def problem(file: DataFile, path: Path | None) -> str | None:
    """What is wrong with the copy of `file` at `path`, in one line; None if nothing is."""
    if path is None:
        return f"{file.name} is missing"
    try:
        with open_content(path) as stream:
            found = digest(iter(lambda: stream.read(CHUNK), b""), file.algorithm)
    except (EOFError, OSError, zlib.error) as error:
        return f"{path.name} cannot be read ({str(error).rstrip('.')})"
    return None if found == file.digest else f"{path.name} has {found}, expected {file.digest}"
