"""IDX, the file format of the MNIST family.

Two zero bytes, a byte for the type, a byte for the number of dimensions, each dimension as a big-endian uint32, then the
entries in row-major order. The format is described at the end of http://yann.lecun.com/exdb/mnist/.
"""

import gzip
import math
import os
import struct
import zlib
from pathlib import Path
from typing import IO, cast

import torch
from torch import Tensor

from holdfast.checks import failure

_GZIP_MAGIC = b"\x1f\x8b"
_IDX_MAGIC = b"\x00\x00\x08"  # 08: unsigned bytes
_MAX_DIMENSIONS = 4
_CHUNK = 1 << 20


def read_idx(path: str | os.PathLike[str]) -> Tensor:
    """The unsigned bytes of an IDX file, as a uint8 tensor of 1 to 4 dimensions.

    Whether the file is gzipped is told by its first bytes, whatever its name. Memory grows with what the file holds and not
    with what its header promises.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is no IDX file of unsigned bytes, or is cut short, damaged, or longer than its header says.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"`path` must be an existing file, got {path}.")
    if not path.is_file():
        raise failure("path", "be a file", path)
    with path.open("rb") as file:
        if file.read(len(_GZIP_MAGIC)) != _GZIP_MAGIC:
            file.seek(0)
            return _parse(file, path)
        file.seek(0)
        try:
            with gzip.open(file) as unpacked:
                return _parse(cast(IO[bytes], unpacked), path)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise failure(
                "path", "be a whole gzip file", f"{path} ({str(error).rstrip('.')})"
            ) from error


def write_idx(path: str | os.PathLike[str], tensor: Tensor) -> None:
    """Writes a uint8 tensor of 1 to 4 dimensions as a gzipped IDX file.

    The file holds neither its name nor the time, so that equal tensors give equal bytes (with the same release of zlib).
    """
    if tensor.dtype != torch.uint8:
        raise failure("tensor", "be uint8", tensor.dtype)
    if not 1 <= tensor.ndim <= _MAX_DIMENSIONS:
        raise failure("tensor", f"have 1 to {_MAX_DIMENSIONS} dimensions", tensor.ndim)
    body = bytearray(tensor.numel())
    if body:
        torch.frombuffer(body, dtype=torch.uint8).copy_(tensor.flatten())
    header = _IDX_MAGIC + struct.pack(f">B{tensor.ndim}I", tensor.ndim, *tensor.shape)
    with (
        Path(path).open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=file, mtime=0) as packed,
    ):
        packed.write(header + body)


def _parse(stream: IO[bytes], path: Path) -> Tensor:
    shape = _read_shape(stream, path)
    size = math.prod(shape)
    body = _read_at_most(stream, size + 1)  # one more, to see that the file ends
    if len(body) != size:
        came = "more" if len(body) > size else len(body)
        raise failure(
            "path", f"hold {size} bytes after a header of shape {shape}", f"{came} in {path}"
        )
    if not body:
        return torch.empty(shape, dtype=torch.uint8)  # `frombuffer` refuses an empty buffer
    return torch.frombuffer(body, dtype=torch.uint8).view(shape)


def _read_shape(stream: IO[bytes], path: Path) -> tuple[int, ...]:
    magic = bytes(_read_at_most(stream, 4))
    if len(magic) < 4 or not magic.startswith(_IDX_MAGIC):
        came = magic.hex(" ") or "nothing"
        raise failure(
            "path",
            "be an IDX file of unsigned bytes, which starts with 00 00 08",
            f"{came} in {path}",
        )
    n_dimensions = magic[3]
    if not 1 <= n_dimensions <= _MAX_DIMENSIONS:
        raise failure(
            "path", f"have 1 to {_MAX_DIMENSIONS} dimensions", f"{n_dimensions} in {path}"
        )
    packed = _read_at_most(stream, 4 * n_dimensions)
    if len(packed) < 4 * n_dimensions:
        raise failure(
            "path", f"have a header of {4 + 4 * n_dimensions} bytes", f"{4 + len(packed)} in {path}"
        )
    shape: tuple[int, ...] = struct.unpack(f">{n_dimensions}I", packed)
    # Without the zeros, because torch refuses the strides of an empty tensor whose other dimensions overflow.
    if math.prod(length for length in shape if length) >= 2**63:
        raise failure("path", "have a shape that 63 bits can count", f"{shape} in {path}")
    return shape


def _read_at_most(stream: IO[bytes], n: int) -> bytearray:
    """The next `n` bytes or what is left of them, in chunks: a single read would allocate all `n` beforehand."""
    body = bytearray()
    while len(body) < n:
        chunk = stream.read(min(_CHUNK, n - len(body)))
        if not chunk:
            break
        body += chunk
    return body
