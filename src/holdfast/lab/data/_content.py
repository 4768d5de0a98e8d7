"""Files that may be gzipped."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, cast

from holdfast.checks import failure

CHUNK: Final = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"


def find_content(folder: Path, name: str) -> Path | None:
    """The path of `name` in the folder, or else of `name.gz`; None if neither exists."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


@contextmanager
def open_content(path: Path) -> Iterator[IO[bytes]]:
    """Opens the uncompressed content; gzip is recognized by the first bytes, not by the name."""
    with path.open("rb") as file:
        is_gzipped = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        file.seek(0)
        if not is_gzipped:
            yield file
            return
        with gzip.open(file) as unpacked:
            yield cast(IO[bytes], unpacked)


@contextmanager
def refusing_damage(path: Path) -> Iterator[None]:
    """Raises ValueError if the content of `path` turns out to be damaged while it is read."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        reason = str(error).rstrip(".")
        raise failure("path", "be a whole gzip file", f"{path} ({reason})") from error
