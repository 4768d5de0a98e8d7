"""Files of a data set out of a tar archive."""

import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import FetchError
from holdfast.lab.data._description import DataFile
from holdfast.lab.data._source import WrongBytesError
from holdfast.lab.data._store import chunks_of, place


def unpack(
    path: Path, wanted: Mapping[str, DataFile], folder: Path, *, name: str
) -> Iterator[DataFile]:
    """Places the regular files that `wanted` names by their path in the archive, and yields each.

    Members are read, never extracted: no path, link or mode of the archive reaches the disk.

    Raises:
        WrongBytesError: if it is no whole archive, lacks one of them or holds it with another content.
        FetchError: if the folder cannot hold them.
    """
    missing = dict(wanted)
    with opened(path, name) as archive:
        for member in archive:
            file = missing.pop(member.name.removeprefix("./"), None) if member.isreg() else None
            stream = archive.extractfile(member) if file is not None else None
            if file is not None and stream is not None:
                place(chunks_of(stream, name), file, folder)
                yield file
    if missing:
        raise WrongBytesError(f"{name} does not hold {', '.join(missing)}")


@contextmanager
def opened(path: Path, name: str) -> Iterator[tarfile.TarFile]:
    """The archive at `path`, which messages call `name`; what cannot be read of it is the source's fault."""
    try:
        with tarfile.open(path) as archive:
            yield archive
    except FetchError:
        raise
    except (EOFError, OSError, tarfile.TarError, zlib.error) as error:
        raise WrongBytesError(f"{name} is damaged ({str(error).rstrip('.')})") from error
