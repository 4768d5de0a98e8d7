"""NumPy's file format, for arrays of plain numbers; nothing in a file is ever run.

Reference: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html.
"""

import ast
import math
from pathlib import Path

import torch
from torch import Tensor

from holdfast.checks import failure

DTYPES = {
    **{f"|{code}": dtype for code, dtype in (("u1", torch.uint8), ("i1", torch.int8))},
    **{f"<i{size // 8}": getattr(torch, f"int{size}") for size in (16, 32, 64)},
    **{f"<u{size // 8}": getattr(torch, f"uint{size}") for size in (16, 32, 64)},
    **{f"<f{size // 8}": getattr(torch, f"float{size}") for size in (16, 32, 64)},
}
"""Torch's types by NumPy's codes."""

_MAGIC = b"\x93NUMPY"


def parse_npy(content: bytearray, path: Path) -> Tensor:
    """The array of a `.npy` file with this content, which it shares memory with.

    Raises:
        ValueError: if the file is damaged, or its values are not integers or floats.
    """
    start, code, is_fortran, shape = _header(content, path)
    if "O" in code:
        raise failure("path", "hold numbers", f"pickled objects in {path}")
    if code not in DTYPES:
        known = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES.values())
        raise failure("path", f"hold numbers of one of the types {known}", f"{code!r} in {path}")
    dtype = DTYPES[code]
    size = math.prod(shape) * dtype.itemsize
    if len(content) - start != size:
        got = f"{len(content) - start:,} in {path}"
        raise failure("path", f"hold {size:,} bytes after its header, for shape {shape}", got)
    if size == 0:
        return torch.empty(shape, dtype=dtype)  # `frombuffer` refuses an empty buffer
    values = torch.frombuffer(content, dtype=dtype, offset=start)
    if is_fortran:
        return values.view(shape[::-1]).permute(*reversed(range(len(shape)))).contiguous()
    return values.view(shape)


def _header(content: bytearray, path: Path) -> tuple[int, str, bool, tuple[int, ...]]:
    """Where the values begin, and their type, order and shape."""
    if not content.startswith(_MAGIC) or len(content) < 12:
        raise failure("path", "be a .npy file, as numpy.save writes it", path)
    length = 2 if content[6] == 1 else 4
    start = 8 + length + int.from_bytes(content[8 : 8 + length], "little")
    try:
        header = ast.literal_eval(content[8 + length : start].decode("utf-8"))
        code, is_fortran, shape = header["descr"], header["fortran_order"], header["shape"]
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError, LookupError):
        raise failure("path", "have a header of NumPy's", f"another in {path}") from None
    is_shape = isinstance(shape, tuple) and all(type(k) is int and k >= 0 for k in shape)
    if not is_shape or len(content) < start:
        raise failure("path", "have a header of NumPy's", f"another in {path}")
    return start, str(code), bool(is_fortran), shape
