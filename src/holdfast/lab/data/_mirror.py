import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast, final
from urllib.parse import urlsplit

from holdfast.checks import failure
from holdfast.errors import FetchError
from holdfast.lab.data._archive import unpack
from holdfast.lab.data._description import Archive, DataFile
from holdfast.lab.data._download import Download, Patience
from holdfast.lab.data._progress import Progress
from holdfast.lab.data._source import Report, Source, SourceError, WrongBytesError
from holdfast.lab.data._store import chunks_of, is_full, place


@final
@dataclass(frozen=True)
class Mirror(Source):
    """A folder on a web server, which offers each file as `FILE.gz` or all of them in one archive.

    A download goes to `NAME.part` beside its target and stays there if it is interrupted, to be continued; only a full disk
    gets its room back. If what it was continued to is wrong, it is downloaded once more from its beginning.
    """

    url: str
    archive: Archive | None
    patience: Patience

    def __post_init__(self) -> None:
        if not _is_web_address(self.url):
            raise failure(
                "mirrors", "be addresses that start with http:// or https://", repr(self.url)
            )

    @property
    def title(self) -> str:
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.hostname}{port}{parts.path}".rstrip("/")

    def deliver(
        self, files: Sequence[DataFile], folder: Path, report: Report
    ) -> Iterator[DataFile]:
        if self.archive is not None:
            yield from self._deliver(self.archive.name, files, folder, report)
            return
        for file in files:
            yield from self._deliver(f"{file.name}.gz", [file], folder, report)

    def _deliver(
        self, name: str, files: Sequence[DataFile], folder: Path, report: Report
    ) -> Iterator[DataFile]:
        """Downloads one file of the mirror and places the files that are packed in it."""
        download = Download(
            f"{self.url.rstrip('/')}/{name}",
            folder / f"{name}.part",
            self.patience,
            lambda done, total: report(Progress(name, done, total, self.title)),
        )
        try:
            download.run()
            try:
                yield from self._unpack(download.part, name, files, folder)
            except WrongBytesError:
                download.part.unlink()
                if not download.resumed:
                    raise
                download.run()
                yield from self._unpack(download.part, name, files, folder)
        except (WrongBytesError, FetchError) as error:
            if isinstance(error, WrongBytesError) or is_full(error):
                download.part.unlink(missing_ok=True)
            raise
        except SourceError as error:
            raise type(error)(f"{name}: {error}") from error
        download.part.unlink()

    def _unpack(
        self, part: Path, name: str, files: Sequence[DataFile], folder: Path
    ) -> Iterator[DataFile]:
        if self.archive is not None:
            yield from unpack(
                part,
                {f"{self.archive.folder}/{file.name}": file for file in files},
                folder,
                name=name,
            )
            return
        (file,) = files
        with gzip.open(part) as stream:
            place(chunks_of(cast(IO[bytes], stream), name), file, folder)
        yield file


def _is_web_address(url: object) -> bool:
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        return (
            parts is not None
            and parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
        )
    except ValueError:  # a port that is no number, a bracket that is not closed
        return False
