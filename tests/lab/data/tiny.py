"""A made-up data set of the MNIST family, small but large enough to be cut in the middle."""

import gzip
import hashlib
import io
import random
import struct
import tarfile
from collections.abc import Mapping
from pathlib import Path

from holdfast.lab.data._data_sets import DataDescription, DataFile


def idx(*shape: int, body: bytes) -> bytes:
    return b"\x00\x00\x08" + struct.pack(f">B{len(shape)}I", len(shape), *shape) + body


CONTENT = {
    "train-images-idx3-ubyte": idx(100, 40, 40, body=random.Random(0).randbytes(160_000)),
    "train-labels-idx1-ubyte": idx(100, body=bytes(i % 10 for i in range(100))),
    "t10k-images-idx3-ubyte": idx(20, 40, 40, body=bytes(32_000)),
    "t10k-labels-idx1-ubyte": idx(20, body=bytes(i % 10 for i in range(20))),
}
BIG = "train-images-idx3-ubyte"
"""The file that cannot be compressed, so that it arrives in many pieces."""

GZIPPED = {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in CONTENT.items()}

TINY = DataDescription(
    name="tiny",
    title="Tiny",
    n_train=100,
    n_test=20,
    license="none",
    homepage="",
    download_bytes=sum(map(len, GZIPPED.values())),
    classes=tuple("0123456789"),
    mean=(0.5,),
    deviation=(0.25,),
    form="idx",
    files=tuple(
        DataFile(name, f"sha256:{hashlib.sha256(content).hexdigest()}")
        for name, content in CONTENT.items()
    ),
    signature="t10k-labels-idx1-ubyte",
    mirrors=("http://127.0.0.1:9/",),  # nothing listens on the discard port
)


def fill(folder: Path, *, gzipped: bool = False, **changed: bytes) -> Path:
    """Writes a copy, with other contents for files named by their first words (`train_images`)."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in CONTENT.items():
        content = changed.get("_".join(name.split("-")[:2]), content)
        path = folder / (f"{name}.gz" if gzipped else name)
        path.write_bytes(gzip.compress(content) if gzipped else content)
    return folder


def tar(members: Mapping[str, bytes]) -> bytes:
    """A gzipped tar file of regular members."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def names(folder: Path) -> set[str]:
    """The names in a folder, except the lock; empty if there is no folder."""
    return {path.name for path in folder.glob("*")} - {".lock"}


def is_right(folder: Path) -> bool:
    """Whether the folder holds the four files, uncompressed, and nothing else."""
    return {name: (folder / name).read_bytes() for name in names(folder)} == CONTENT
