"""The bundled slice of Fashion-MNIST, and the reader of IDX files with every kind of bad file."""

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
    data_sets,
    fashion_mnist_slice,
    read_idx,
    read_idx_folder,
    write_idx,
)
from tests.lab.data.embed import SIZES, embed

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package `dataset-fashion-mnist` puts the full set."""

SHA256 = {
    f"{file.name}.gz": file.digest.removeprefix("sha256:")
    for file in data_sets["fashion-mnist-slice"].files
}
"""Of the content, because the compressed bytes may differ between releases of zlib."""

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


def test_the_slice_holds_equally_many_of_each_class() -> None:
    for split, n_per_class in SIZES.items():
        images = fashion_mnist_slice(split)
        assert images.images.shape == (10 * n_per_class, 28, 28)
        assert images.images.dtype == torch.uint8
        assert images.labels.dtype == torch.int64
        assert images.labels.bincount().tolist() == [n_per_class] * len(CLASSES)


def test_the_content_of_the_slice_is_pinned() -> None:
    embedded = Path(str(files("holdfast.lab.data"))) / "embedded"
    assert {path.name: sha256(path) for path in embedded.glob("*.gz")} == SHA256
    digest = hashlib.sha256(" ".join(SHA256.values()).encode()).hexdigest()
    assert digest == "e1fb80ef37cea8926acd0990b59fbfad8a51484e7ea49ca88c52a5b0603fe174"
    assert "Copyright (c) 2017 Zalando SE" in (embedded / "LICENSE").read_text()


def test_no_image_occurs_twice_within_or_across_the_splits() -> None:
    both = torch.cat([fashion_mnist_slice(split).images.flatten(1) for split in SIZES])
    assert len({image.numpy().tobytes() for image in both}) == len(both) == 8000


@installed
def test_cutting_the_slice_again_gives_the_same(tmp_path: Path) -> None:
    embed(DEBIAN, tmp_path / "new" / "slice")
    written = (tmp_path / "new" / "slice").iterdir()
    assert {path.name: sha256(path) for path in written} == SHA256


@installed
@pytest.mark.parametrize(("split", "n"), [("train", 60_000), ("test", 10_000)])
def test_the_slice_is_a_part_of_the_full_set(split: Literal["train", "test"], n: int) -> None:
    full, part = read_idx_folder(DEBIAN, split), fashion_mnist_slice(split)
    assert full.images.shape == (n, 28, 28)
    for label in range(len(CLASSES)):
        own = part.images[part.labels == label]
        assert torch.equal(own, full.images[full.labels == label][: len(own)])


def test_a_wrong_split_is_refused(tmp_path: Path) -> None:
    wrong: list[Any] = ["valid", "", None, 0]
    for split in wrong:
        message = re.escape(f"`split` must be 'train' or 'test', got {split!r}.")
        with pytest.raises(ValueError, match=message):
            fashion_mnist_slice(split)
        with pytest.raises(ValueError, match=message):
            read_idx_folder(tmp_path, split)


# A folder with the full set


def test_a_folder_may_mix_raw_and_gzipped_files(tmp_path: Path) -> None:
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(content(2, 28, 28))
    write_idx(tmp_path / "t10k-labels-idx1-ubyte.gz", torch.tensor([7, 1], dtype=torch.uint8))
    loaded = read_idx_folder(str(tmp_path), "test")
    assert loaded.images.shape == (2, 28, 28)
    assert loaded.labels.tolist() == [7, 1]


def test_a_folder_without_the_files_is_refused(tmp_path: Path) -> None:
    message = (
        f"`folder` must hold train-images-idx3-ubyte.gz or train-images-idx3-ubyte, got {tmp_path}."
    )
    with pytest.raises(FileNotFoundError, match=re.escape(message)):
        read_idx_folder(tmp_path, "train")


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


def test_written_bytes_depend_on_the_tensor_only(tmp_path: Path) -> None:
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
        content(2**20, 2**10, body=b"abc"),
        f"hold {2**30} bytes after a header of shape (1048576, 1024), got 3 in",
    ),
    "beyond a gigabyte": (
        content(*[2**32 - 1] * 4, body=b"abc"),
        "have a shape of at most 1073741824 bytes, got (4294967295, ",
    ),
    "empty, beyond a gigabyte": (
        content(0, *[2**32 - 1] * 3, body=b""),
        "have a shape of at most 1073741824 bytes, got (0, 4294967295, ",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_by_one_sentence_and_little_memory(case: str, tmp_path: Path) -> None:
    bad, message = BAD[case]
    path = tmp_path / "x"
    sentence = f"^{re.escape(f'`path` must {message}')}.*{re.escape(str(path))}\\.$"
    for content in (bad, gzip.compress(bad)):
        path.write_bytes(content)
        tracemalloc.start()
        try:
            with pytest.raises(ValueError, match=sentence):
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
        if place in (4, 5, 6, 7, 8, 9):  # time, compression level, system: not content
            assert read_idx(path).shape == (4, 5)
        else:
            with pytest.raises(ValueError, match=re.escape(str(path))):
                read_idx(path)


def test_garbage_after_a_gzip_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(gzip.compress(content(4, 5)) + b"garbage")
    with pytest.raises(ValueError, match=r"`path` must be a whole gzip file"):
        read_idx(tmp_path / "x")
