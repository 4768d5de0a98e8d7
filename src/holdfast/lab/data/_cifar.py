"""The binary batches of CIFAR-10: a byte for the label, then 3072 for the red, green and blue planes, image after image.

Reference: Krizhevsky, *Learning Multiple Layers of Features from Tiny Images* (2009); https://www.cs.toronto.edu/~kriz/cifar.html.
"""

import io
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from holdfast.checks import failure
from holdfast.lab.data._content import open_content
from holdfast.lab.data._images import Images
from holdfast.lab.data._source import SourceError, WrongBytesError

_SIDE = 32
_PIXELS = _SIDE * _SIDE
_RECORD = 1 + 3 * _PIXELS


def read_batches(paths: Sequence[Path]) -> Images:
    """The images of the batches, one batch after the other, as uint8 [N, 3, 32, 32].

    Raises:
        ValueError: if a batch is empty, damaged, or does not end with an image.
    """
    batches = [_read(path) for path in paths]
    images = torch.cat([batch[:, 1:] for batch in batches]).view(-1, 3, _SIDE, _SIDE)
    return Images(images, torch.cat([batch[:, 0] for batch in batches]).to(torch.int64))


def batch_from_png(png: IO[bytes], labels: Sequence[int], name: str) -> bytes:
    """The binary batch of images that a lossless PNG holds, one image a row, its pixels in row-major order.

    The picture is 1024 wide and has a row for each of the `labels`; messages call it `name`.
    """
    try:
        from PIL import Image  # of the extra `lab`; only this one source needs it
    except ImportError as error:
        raise SourceError("Pillow is not installed (pip install 'holdfast[lab]')") from error
    try:
        with Image.open(io.BytesIO(png.read()), formats=["PNG"]) as picture:
            if picture.size != (_PIXELS, len(labels)) or picture.mode != "RGB":
                raise WrongBytesError(
                    f"{name} is {picture.size} {picture.mode}, expected {(_PIXELS, len(labels))} RGB"
                )
            pixels = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8)
    except (
        EOFError,
        OSError,
        SyntaxError,
        ValueError,
        zlib.error,
        Image.DecompressionBombError,
    ) as error:
        raise WrongBytesError(f"{name} is no whole PNG ({error})") from error
    planes = pixels.view(len(labels), _PIXELS, 3).transpose(1, 2).reshape(len(labels), -1)
    body = bytearray(len(labels) * _RECORD)
    batch = torch.frombuffer(body, dtype=torch.uint8).view(-1, _RECORD)
    batch[:, 0] = torch.tensor(labels, dtype=torch.uint8)
    batch[:, 1:] = planes
    return bytes(body)


def labels_from_json(text: IO[bytes], name: str) -> list[int]:
    """The labels in a JSON list, each from 0 to 9."""
    try:
        labels = json.load(text)
    except ValueError as error:
        raise WrongBytesError(f"{name} is no JSON ({error})") from error
    if (
        not isinstance(labels, list)
        or not labels
        or not all(type(label) is int and 0 <= label < 10 for label in labels)
    ):
        raise WrongBytesError(f"{name} is no list of labels from 0 to 9")
    return labels


def _read(path: Path) -> Tensor:
    try:
        with open_content(path) as stream:
            body = bytearray(stream.read())
    except (EOFError, zlib.error) as error:
        raise failure(
            "path", "be a whole gzip file", f"{path} ({str(error).rstrip('.')})"
        ) from error
    if not body or len(body) % _RECORD:
        raise failure(
            "path", f"hold images of {_RECORD} bytes each", f"{len(body)} bytes in {path}"
        )
    return torch.frombuffer(body, dtype=torch.uint8).view(-1, _RECORD)
