"""The embedded slice of Fashion-MNIST, and the reader of IDX files with every way a file can be bad."""

import gzip
import hashlib
import math
import re
import struct
import tempfile
import tracemalloc
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from holdfast.lab.data import (
    CLASSES,
    Images,
    fashion_mnist_slice,
    load_fashion_mnist,
    read_idx,
    write_idx,
)
from holdfast.lab.data._embed import embed, main

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package `dataset-fashion-mnist` puts the full set."""

SHA256 = {
    "train-images-idx3-ubyte.gz": "cf313073c7eb485392848071d5c433571d7166043e971e3345b095cc30518084",
    "train-labels-idx1-ubyte.gz": "097b93fbcf9bd5bc648b1a457ddc55c9e4ab49afb33f9ecae8ce068399a75e3a",
    "t10k-images-idx3-ubyte.gz": "15a92dd1e9b16ea361928086e77df4dfa890c255c00b5a8c8162c1040ce8eef1",
    "t10k-labels-idx1-ubyte.gz": "234596aeb6eb48133ec99a62541f90bc0728c9559a681f1e0638037462458f2c",
}
"""Of the content, because the compressed bytes may differ between releases of zlib."""

SPLITS: list[tuple[Literal["train", "test"], int]] = [("train", 600), ("test", 200)]

installed = pytest.mark.skipif(
    not DEBIAN.is_dir(), reason="Debian's package dataset-fashion-mnist is not installed"
)


def content(*shape: int, magic: bytes = b"\x00\x00\x08", body: bytes | None = None) -> bytes:
    """The bytes of an IDX file, with a body that fits the shape unless one is given."""
    header = magic + struct.pack(f">B{len(shape)}I", len(shape), *shape)
    return header + (bytes(i % 251 for i in range(math.prod(shape))) if body is None else body)


def sha256(path: Any) -> str:
    return hashlib.sha256(gzip.decompress(path.read_bytes())).hexdigest()


@st.composite
def byte_tensors(draw: st.DrawFn) -> Tensor:
    """Tensors of 1 to 4 dimensions, some empty, some not contiguous."""
    shape = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    body = draw(st.binary(min_size=math.prod(shape), max_size=math.prod(shape)))
    tensor = torch.tensor(list(body), dtype=torch.uint8).view(shape)
    return tensor.transpose(0, -1) if draw(st.booleans()) else tensor


# The slice


@pytest.mark.parametrize(("split", "n_per_class"), SPLITS)
def test_the_slice_holds_equally_many_of_each_class(
    split: Literal["train", "test"], n_per_class: int
) -> None:
    images = fashion_mnist_slice(split)
    assert len(images) == 10 * n_per_class
    assert images.images.shape == (10 * n_per_class, 28, 28)
    assert images.images.dtype == torch.uint8
    assert images.labels.dtype == torch.int64
    assert images.labels.bincount().tolist() == [n_per_class] * len(CLASSES)


@pytest.mark.parametrize("name", SHA256)
def test_the_content_of_the_slice_is_pinned(name: str) -> None:
    assert sha256(files("holdfast.lab.data") / "embedded" / name) == SHA256[name]


def test_the_slice_comes_with_its_licence() -> None:
    text = (files("holdfast.lab.data") / "embedded" / "LICENSE").read_text()
    assert "Copyright (c) 2017 Zalando SE" in text


def test_no_image_occurs_twice_within_or_across_the_splits() -> None:
    both = torch.cat([fashion_mnist_slice(split).images.flatten(1) for split, _ in SPLITS])
    assert len({bytes(image) for image in both.tolist()}) == len(both) == 8000


@installed
def test_cutting_the_slice_again_gives_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([str(DEBIAN), str(tmp_path / "new" / "slice")])
    written = sorted((tmp_path / "new" / "slice").iterdir())
    assert {path.name: sha256(path) for path in written} == SHA256
    assert sorted(capsys.readouterr().out.splitlines()) == [
        f"{path.name}: {path.stat().st_size} bytes" for path in written
    ]


@installed
@pytest.mark.parametrize(("split", "n"), [("train", 60_000), ("test", 10_000)])
def test_the_full_set_loads_and_the_slice_is_of_it(split: Literal["train", "test"], n: int) -> None:
    full, part = load_fashion_mnist(DEBIAN, split), fashion_mnist_slice(split)
    assert full.images.shape == (n, 28, 28)
    for label in range(len(CLASSES)):
        mine = part.images[part.labels == label]
        assert torch.equal(mine, full.images[full.labels == label][: len(mine)])


@pytest.mark.parametrize("split", ["valid", "", None, 0])
def test_a_wrong_split_is_refused(split: Any, tmp_path: Path) -> None:
    message = re.escape(f"`split` must be 'train' or 'test', got {split!r}.")
    with pytest.raises(ValueError, match=message):
        fashion_mnist_slice(split)
    with pytest.raises(ValueError, match=message):
        load_fashion_mnist(tmp_path, split)


# A folder with the full set


def test_a_folder_may_mix_raw_and_gzipped_files(tmp_path: Path) -> None:
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(content(2, 28, 28))
    write_idx(tmp_path / "t10k-labels-idx1-ubyte.gz", torch.tensor([7, 1], dtype=torch.uint8))
    loaded = load_fashion_mnist(str(tmp_path), "test")
    assert loaded.images.shape == (2, 28, 28)
    assert loaded.labels.tolist() == [7, 1]


def test_a_folder_without_the_files_is_refused(tmp_path: Path) -> None:
    message = (
        f"`folder` must hold train-images-idx3-ubyte.gz or train-images-idx3-ubyte, got {tmp_path}."
    )
    with pytest.raises(FileNotFoundError, match=re.escape(message)):
        load_fashion_mnist(tmp_path, "train")


def test_a_set_too_small_for_the_slice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train-images-idx3-ubyte").write_bytes(content(1, 28, 28))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(content(1))
    with pytest.raises(
        ValueError, match=r"`source_folder` must hold at least 600 of T-shirt/top, got 1\."
    ):
        embed(tmp_path, tmp_path / "slice")


# Images


def test_scaled_images_are_floats_from_0_to_1() -> None:
    pixels = torch.arange(256, dtype=torch.uint8).view(2, 8, 16)
    scaled = Images(pixels, torch.tensor([0, 1])).scaled()
    assert scaled.dtype == torch.float32
    assert scaled.shape == (2, 1, 8, 16)
    assert (scaled.min().item(), scaled.max().item()) == (0, 1)
    assert torch.equal((scaled * 255).round().to(torch.uint8).squeeze(1), pixels)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (
            torch.zeros(2, 28, 28),
            torch.zeros(2).long(),
            "`images` must be uint8, got torch.float32.",
        ),
        (
            torch.zeros(2, 784).byte(),
            torch.zeros(2).long(),
            "`images` must have shape [N, H, W] or [N, C, H, W], got (2, 784).",
        ),
        (
            torch.zeros(2, 28, 28).byte(),
            torch.zeros(2).byte(),
            "`labels` must be int64, got torch.uint8.",
        ),
        (
            torch.zeros(2, 28, 28).byte(),
            torch.zeros(2, 1).long(),
            "`labels` must have shape [N], got (2, 1).",
        ),
        (
            torch.zeros(2, 28, 28).byte(),
            torch.zeros(3).long(),
            "`labels` must be as many as the images (2), got 3.",
        ),
        (torch.zeros(2, 28, 28).byte(), [0, 1], "`labels` must be a Tensor, got list."),
    ],
)
def test_bad_images_are_refused(images: Any, labels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Images(images, labels)


# IDX files


@given(tensor=byte_tensors())
def test_what_is_written_is_read(tensor: Tensor) -> None:
    with tempfile.TemporaryDirectory() as folder:
        gzipped, raw = Path(folder, "gzipped"), Path(folder, "raw.gz")  # the names must not matter
        write_idx(gzipped, tensor)
        raw.write_bytes(gzip.decompress(gzipped.read_bytes()))
        for path in (gzipped, raw, str(raw)):
            read = read_idx(path)
            assert read.dtype == torch.uint8
            assert read.shape == tensor.shape
            assert torch.equal(read, tensor)


def test_the_format_is_idx(tmp_path: Path) -> None:
    write_idx(tmp_path / "x.gz", torch.tensor([[1, 2, 3], [4, 5, 255]], dtype=torch.uint8))
    written = gzip.decompress((tmp_path / "x.gz").read_bytes())
    assert written == bytes.fromhex("00000802 00000002 00000003 010203 0405ff")


def test_a_body_of_many_chunks_is_read(tmp_path: Path) -> None:
    tensor = torch.arange(3_000_001).remainder(253).to(torch.uint8)
    write_idx(tmp_path / "x", tensor)
    assert torch.equal(read_idx(tmp_path / "x"), tensor)


def test_what_is_read_may_be_changed(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content(3))
    assert read_idx(tmp_path / "x").add_(1).tolist() == [1, 2, 3]


def test_written_bytes_depend_on_the_tensor_alone(tmp_path: Path) -> None:
    tensor = torch.arange(60, dtype=torch.uint8).view(3, 4, 5)
    write_idx(tmp_path / "a.gz", tensor)
    write_idx(tmp_path / "another-name.gz", tensor)
    first = (tmp_path / "a.gz").read_bytes()
    assert first == (tmp_path / "another-name.gz").read_bytes()
    # Deflate, no flags (so no name), time 0, best compression, no system.
    assert first[:10] == bytes.fromhex("1f8b 08 00 00000000 02 ff")


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (torch.zeros(3), "`tensor` must be uint8, got torch.float32."),
        (torch.zeros(()).byte(), "`tensor` must have 1 to 4 dimensions, got 0."),
        (torch.zeros(1, 1, 1, 1, 1).byte(), "`tensor` must have 1 to 4 dimensions, got 5."),
    ],
)
def test_a_tensor_that_idx_cannot_hold_is_refused(
    tensor: Tensor, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        write_idx(tmp_path / "x.gz", tensor)
    assert not (tmp_path / "x.gz").exists()


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError,
        match=re.escape(f"`path` must be an existing file, got {tmp_path / 'x'}."),
    ):
        read_idx(tmp_path / "x")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(f"`path` must be a file, got {tmp_path}.")):
        read_idx(tmp_path)


NO_IDX = "be an IDX file of unsigned bytes, which starts with 00 00 08"
BAD = {
    "empty": (b"", f"{NO_IDX}, got nothing in"),
    "cut magic": (b"\x00\x00\x08", f"{NO_IDX}, got 00 00 08 in"),
    "wrong magic": (content(3, magic=b"\x01\x00\x08"), f"{NO_IDX}, got 01 00 08 01 in"),
    "text": (b"<html>Not found</html>", f"{NO_IDX}, got 3c 68 74 6d in"),
    "floats": (content(3, magic=b"\x00\x00\x0d"), f"{NO_IDX}, got 00 00 0d 01 in"),
    "no dimension": (content(), "have 1 to 4 dimensions, got 0 in"),
    "five dimensions": (content(1, 1, 1, 1, 1), "have 1 to 4 dimensions, got 5 in"),
    "cut header": (content(2, 3)[:9], "have a header of 12 bytes, got 9 in"),
    "cut body": (content(2, 3)[:-1], "hold 6 bytes after a header of shape (2, 3), got 5 in"),
    "no body": (content(2, 3, body=b""), "hold 6 bytes after a header of shape (2, 3), got 0 in"),
    "trailing byte": (
        content(2, 3) + b"\x00",
        "hold 6 bytes after a header of shape (2, 3), got more in",
    ),
    "trailing byte, empty": (
        content(0) + b"\x00",
        "hold 0 bytes after a header of shape (0,), got more in",
    ),
    "absurd": (
        content(2**32 - 1, 2**20, body=b"abc"),
        f"hold {(2**32 - 1) << 20} bytes after a header of shape (4294967295, 1048576), got 3 in",
    ),
    "beyond 63 bits": (
        content(*[2**32 - 1] * 4, body=b"abc"),
        "have a shape that 63 bits can count, got (4294967295, ",
    ),
    "empty, beyond 63 bits": (
        content(0, *[2**32 - 1] * 3, body=b""),
        "have a shape that 63 bits can count, got (0, 4294967295, ",
    ),
}


@pytest.mark.parametrize("gzipped", [False, True], ids=["raw", "gz"])
@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_by_one_sentence_and_little_memory(
    case: str, gzipped: bool, tmp_path: Path
) -> None:
    bad, message = BAD[case]
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(bad) if gzipped else bad)
    tracemalloc.start()
    try:
        with pytest.raises(
            ValueError, match=f"^{re.escape(f'`path` must {message}')}.*{re.escape(str(path))}\\.$"
        ):
            read_idx(path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_gzip_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    whole = gzip.compress(content(4, 5))
    for length in range(2, len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(
            ValueError,
            match=rf"^`path` must be a whole gzip file, got {re.escape(str(path))} \(.*[^.]\)\.$",
        ):
            read_idx(path)


def test_a_gzip_file_damaged_anywhere_is_refused_or_read_right(tmp_path: Path) -> None:
    path = tmp_path / "x"
    whole = gzip.compress(content(4, 5), mtime=0)
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        if place in (4, 5, 6, 7, 8, 9):  # the time, the effort, the system: no part of the content
            assert read_idx(path).shape == (4, 5)
        else:
            with pytest.raises(ValueError, match=re.escape(str(path))):
                read_idx(path)


def test_garbage_after_a_gzip_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(gzip.compress(content(4, 5)) + b"garbage")
    with pytest.raises(ValueError, match=r"`path` must be a whole gzip file"):
        read_idx(tmp_path / "x")
