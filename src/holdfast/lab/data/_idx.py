"""IDX, the file format of the MNIST family.

Two zero bytes, a byte for the type, a byte for the number of dimensions, each dimension as a
big-endian uint32, then the entries in row-major order. The format is described at the end of
http://yann.lecun.com/exdb/mnist/.
"""

import gzip
import math
import os
import struct
from pathlib import Path
from typing import IO, Literal

import torch
from torch import Tensor

from holdfast.checks import failure
from holdfast.lab.data._content import CHUNK, find_content, open_content, refusing_damage
from holdfast.lab.data._data_set import Images

_IDX_MAGIC = b"\x00\x00\x08"  # 08: unsigned bytes
_MAX_DIMENSIONS = 4
_MAX_BYTES = 2**30
"""Twenty times the largest file of MNIST; gzip packs zeros into a thousandth."""


def read_idx(path: str | os.PathLike[str]) -> Tensor:
    """Reads the unsigned bytes of an IDX file as a uint8 tensor with 1 to 4 dimensions.

    The file may be gzipped; this is recognized by its first bytes, not by its name. Memory grows
    with its content, to at most 1 GiB, not with the shape in its header.

    Raises:
        FileNotFoundError: if the file does not exist.
        ValueError: if it is not an IDX file of unsigned bytes, holds more than 1 GiB, or is
            truncated, damaged or longer than its header says.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"`path` must be an existing file, got {path}.")
    if not path.is_file():
        raise failure("path", "be a file", path)
    with refusing_damage(path), open_content(path) as stream:
        return _parse(stream, path)


def write_idx(path: str | os.PathLike[str], tensor: Tensor) -> None:
    """Writes a uint8 tensor with 1 to 4 dimensions as a gzipped IDX file.

    The file contains neither its name nor the time: equal tensors give equal bytes, with the same
    release of zlib.
    """
    if tensor.dtype != torch.uint8:
        raise failure("tensor", "be uint8", tensor.dtype)
    if not 1 <= tensor.ndim <= _MAX_DIMENSIONS:
        raise failure("tensor", f"have 1 to {_MAX_DIMENSIONS} dimensions", tensor.ndim)
    body = bytearray(tensor.numel())
    if body:  # `frombuffer` refuses an empty buffer
        torch.frombuffer(body, dtype=torch.uint8).copy_(tensor.flatten())
    header = _IDX_MAGIC + struct.pack(f">B{tensor.ndim}I", tensor.ndim, *tensor.shape)
    with (
        Path(path).open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=file, mtime=0) as packed,
    ):
        packed.write(header + body)


def read_idx_folder(folder: str | os.PathLike[str], split: Literal["train", "test"]) -> Images:
    """Reads one split of MNIST or Fashion-MNIST from a folder with the four standard files.

    The files are `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and
    `t10k-labels-idx1-ubyte`, with or without `.gz`.
    """
    paths = []
    for name in standard_names(split):
        path = find_content(Path(folder), name)
        if path is None:
            raise FileNotFoundError(f"`folder` must hold {name}.gz or {name}, got {folder}.")
        paths.append(path)
    images, labels = map(read_idx, paths)
    return Images(images, labels.to(torch.int64))


def standard_names(split: Literal["train", "test"]) -> tuple[str, str]:
    """The names, without `.gz`, of the files with the images and with the labels."""
    if split not in ("train", "test"):
        raise failure("split", "be 'train' or 'test'", repr(split))
    prefix = "train" if split == "train" else "t10k"
    return f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"


def _parse(stream: IO[bytes], path: Path) -> Tensor:
    shape = _read_shape(stream, path)
    size = math.prod(shape)
    body = _read_at_most(stream, size + 1)  # one more, to check that the file ends
    if len(body) != size:
        got = "more" if len(body) > size else len(body)
        expected = f"hold {size} bytes after a header of shape {shape}"
        raise failure("path", expected, f"{got} in {path}")
    if not body:
        return torch.empty(shape, dtype=torch.uint8)  # `frombuffer` refuses an empty buffer
    return torch.frombuffer(body, dtype=torch.uint8).view(shape)


def _read_shape(stream: IO[bytes], path: Path) -> tuple[int, ...]:
    magic = bytes(_read_at_most(stream, 4))
    if len(magic) < 4 or not magic.startswith(_IDX_MAGIC):
        expected = "be an IDX file of unsigned bytes, which starts with 00 00 08"
        raise failure("path", expected, f"{magic.hex(' ') or 'nothing'} in {path}")
    n = magic[3]
    if not 1 <= n <= _MAX_DIMENSIONS:
        raise failure("path", f"have 1 to {_MAX_DIMENSIONS} dimensions", f"{n} in {path}")
    packed = _read_at_most(stream, 4 * n)
    if len(packed) < 4 * n:
        expected = f"have a header of {4 + 4 * n} bytes"
        raise failure("path", expected, f"{4 + len(packed)} in {path}")
    shape: tuple[int, ...] = struct.unpack(f">{n}I", packed)
    # Zeros are left out, because torch refuses the strides of an empty tensor whose other
    # dimensions overflow.
    if math.prod(length for length in shape if length) > _MAX_BYTES:
        raise failure("path", f"have a shape of at most {_MAX_BYTES} bytes", f"{shape} in {path}")
    return shape


def _read_at_most(stream: IO[bytes], n: int) -> bytearray:
    # In chunks, because a single read would allocate all `n` bytes that the header promises.
    body = bytearray()
    while len(body) < n and (chunk := stream.read(min(CHUNK, n - len(body)))):
        body += chunk
    return body
