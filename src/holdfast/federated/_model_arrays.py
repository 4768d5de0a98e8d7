"""The arrays of a model in Flower's records, and their conversion to rows."""

import io
import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, final

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray
from torch import Tensor

from holdfast.checks import failure
from holdfast.geometry import DenseRows

Numbers = NDArray[Any]

FLOATS = (np.float16, np.float32, np.float64)
"""Dtypes of the arrays that become rows."""


def numbers_of(array: Array) -> Numbers:
    """The numbers of an array, as a view of the bytes that arrived.

    Shape and dtype are read from the header of the bytes, not from the claims in the record.
    Objects are never unpickled. Raises a ValueError if the bytes are not an array of numbers.
    """
    if array.stype != "numpy.ndarray":
        raise ValueError(f"is serialized as {array.stype!r}")
    stream = io.BytesIO(array.data)
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    else:
        shape, is_fortran, dtype = np.lib.format.read_array_header_2_0(stream)
    if dtype.kind not in "fiub":
        raise ValueError(f"has dtype {dtype}")
    size = math.prod(shape)
    if size == 0:
        return np.empty(shape, dtype)
    flat = np.frombuffer(array.data, dtype, size, stream.tell())
    return flat.reshape(shape, order="F" if is_fortran else "C")


def _as_integers(name: str, value: Numbers, dtype: np.dtype[Any]) -> Numbers:
    """The same integers in the model's dtype: NumPy makes floats of signed and unsigned ones."""
    least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if value.size and not least <= int(value.min()) <= int(value.max()) <= most:
        raise ValueError(f"array {name!r} leaves the range of {dtype}")
    return value.astype(dtype, copy=False)


def middle(values: Sequence[Numbers]) -> Numbers:
    """The lower median of arrays, entry by entry: exact for integers, and one of the values."""
    stacked = np.sort(np.stack(values), axis=0)
    return np.asarray(stacked[(len(values) - 1) // 2])


@final
class ModelArrays:
    """The global model of a round, and how replies differ from it.

    Floating arrays become columns of the rows, in one dtype: the widest of them, at least float32.
    Integer arrays, such as the counters of BatchNorm, arrays without dimensions, and those whose
    names match a pattern of `apart` do not: their entries are combined by the coordinate median.

    Args:
        arrays: the global model.
        apart: patterns of names, as of files.
    """

    def __init__(self, arrays: ArrayRecord, *, apart: Sequence[str] = ()) -> None:
        self.values = {name: numbers_of(array) for name, array in arrays.items()}
        for name, value in self.values.items():
            if value.dtype.kind == "f" and value.dtype not in FLOATS:
                kinds = "have dtype float16, float32, float64, integer or bool"
                raise failure(f"arrays[{name!r}]", kinds, value.dtype)
        self.columns = tuple(
            name
            for name, value in self.values.items()
            if value.dtype.kind == "f"
            and value.ndim > 0
            and value.size > 0
            and not any(fnmatchcase(name, pattern) for pattern in apart)
        )
        if not self.columns:
            names = sorted(self.values)
            raise failure("arrays", "hold at least one floating array with dimensions", names)
        self.apart = tuple(name for name in self.values if name not in set(self.columns))
        is_wide = any(self.values[name].dtype == np.float64 for name in self.columns)
        self.dtype = torch.float64 if is_wide else torch.float32
        self.sizes = tuple(self.values[name].size for name in self.columns)

    def checked(self, record: Mapping[str, Array], names: Sequence[str]) -> dict[str, Numbers]:
        """The arrays of a reply, if they have exactly these names, and the model's shapes.

        Integers may arrive in another integer dtype, and floating numbers in another floating
        dtype. A ValueError states what is wrong. Only arrays outside of the rows are checked for
        non-finite numbers here: in rows they are found faster when the rows are complete.
        """
        if set(record) != set(names):
            missing, unknown = sorted(set(names) - set(record)), sorted(set(record) - set(names))
            raise ValueError(f"lacks the arrays {missing[:3]} and has unknown ones {unknown[:3]}")
        found = {}
        for name in names:
            value, own = numbers_of(record[name]), self.values[name]
            if value.shape != own.shape:
                raise ValueError(f"array {name!r} has shape {value.shape}, not {own.shape}")
            if (value.dtype.kind == "f") != (own.dtype.kind == "f"):
                raise ValueError(f"array {name!r} has dtype {value.dtype}, not {own.dtype}")
            if name in self.apart and not np.isfinite(value).all():
                raise ValueError(f"array {name!r} is not finite")
            found[name] = value if value.dtype.kind == "f" else _as_integers(name, value, own.dtype)
        return found

    def rows(self, replies: Sequence[dict[str, Numbers]]) -> DenseRows:
        """The updates [n, d] of all replies, whose arrays are removed as they are read.

        At any time there is a second copy of at most one array.
        """
        tensors = []
        for name in self.columns:
            own = self.values[name].reshape(-1)
            tensor = torch.empty(len(replies), own.size, dtype=self.dtype)
            for row, reply in zip(tensor.numpy(), replies, strict=True):
                # What overflows here is infinite, and so the row is not finite.
                with np.errstate(all="ignore"):
                    np.subtract(reply.pop(name).reshape(-1), own, out=row, casting="unsafe")
            tensors.append(tensor)
        return DenseRows(tensors)

    def voted(self, replies: Sequence[Mapping[str, Numbers]]) -> dict[str, Numbers]:
        """The arrays outside of the rows, by the coordinate median over all replies."""
        return {name: middle([reply[name] for reply in replies]) for name in self.apart}

    def moved(self, update: Tensor, voted: Mapping[str, Numbers]) -> ArrayRecord:
        """The model after an update [d], with the `voted` arrays, in its own names and dtypes."""
        pieces = dict(zip(self.columns, torch.split(update, list(self.sizes)), strict=True))
        new: dict[str, Numbers] = {}
        for name, own in self.values.items():
            if name in pieces:
                new[name] = own + pieces[name].numpy().reshape(own.shape)
            else:
                new[name] = voted[name]
        return self.record(new)

    def record(self, values: Mapping[str, Numbers]) -> ArrayRecord:
        """Arrays with the model's names as a record, in the model's dtypes."""
        cast = {name: np.asarray(value, self.values[name].dtype) for name, value in values.items()}
        return ArrayRecord({name: Array(value) for name, value in cast.items()})
