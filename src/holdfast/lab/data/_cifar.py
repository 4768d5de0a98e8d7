"""The binary batches of CIFAR-10.

Per image, one byte for the label, then 3072 bytes for the red, green and blue planes.

Reference: Krizhevsky, *Learning Multiple Layers of Features from Tiny Images* (2009);
https://www.cs.toronto.edu/~kriz/cifar.html.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from holdfast.checks import failure
from holdfast.lab.data._content import open_content, refusing_damage
from holdfast.lab.data._data_set import Images

_SIDE = 32
_RECORD = 1 + 3 * _SIDE**2
_MOST_BYTES = 10_000 * _RECORD
"""Of a batch; all batches of CIFAR-10 have as many."""


def read_batches(paths: Sequence[Path]) -> Images:
    """Reads and concatenates batches, as uint8 images [N, 3, 32, 32].

    Raises:
        ValueError: if a batch is empty, damaged, or does not end with a whole image.
    """
    batches = [_read(path) for path in paths]
    images = torch.cat([batch[:, 1:] for batch in batches]).view(-1, 3, _SIDE, _SIDE)
    return Images(images, torch.cat([batch[:, 0] for batch in batches]).to(torch.int64))


def pack_batch(labels: Sequence[int], pixels: bytes) -> bytes:
    """Builds a binary batch from interleaved pixels: [N, 32, 32, 3] in row-major order."""
    planes = torch.frombuffer(bytearray(pixels), dtype=torch.uint8).view(len(labels), -1, 3)
    body = bytearray(len(labels) * _RECORD)
    batch = torch.frombuffer(body, dtype=torch.uint8).view(-1, _RECORD)
    batch[:, 0] = torch.tensor(labels, dtype=torch.uint8)
    batch[:, 1:] = planes.transpose(1, 2).flatten(1)
    return bytes(body)


def _read(path: Path) -> Tensor:
    with refusing_damage(path), open_content(path) as stream:
        body = bytearray(stream.read(_MOST_BYTES + 1))
    if len(body) > _MOST_BYTES:  # gzip packs zeros into a thousandth
        raise failure("path", f"hold at most {_MOST_BYTES} bytes", f"more in {path}")
    if not body or len(body) % _RECORD:
        expected = f"hold images of {_RECORD} bytes each"
        raise failure("path", expected, f"{len(body)} bytes in {path}")
    return torch.frombuffer(body, dtype=torch.uint8).view(-1, _RECORD)
