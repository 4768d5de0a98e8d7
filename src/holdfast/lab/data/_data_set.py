"""Images with labels, and data sets made of them."""

from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from holdfast.checks import check_instance, failure


@final
@dataclass(frozen=True, eq=False)
class Images:
    """Images with their labels, stored as bytes.

    Shapes: `images` is uint8 [N, H, W] (gray) or [N, C, H, W], `labels` is int64 [N].

    Example:
        >>> images = Images(torch.full((2, 28, 28), 255, dtype=torch.uint8), torch.tensor([3, 9]))
        >>> len(images), images.shape, images.scaled().max()
        (2, (1, 28, 28), tensor(1.))
        >>> pixels, labels = images.batch(torch.tensor([1]))
        >>> pixels.shape, labels
        (torch.Size([1, 1, 28, 28]), tensor([9]))
    """

    images: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        _check("images", self.images, torch.uint8, "[N, H, W]", "[N, C, H, W]")
        _check("labels", self.labels, torch.int64, "[N]")
        n = len(self.images)
        if len(self.labels) != n:
            raise failure("labels", f"be as many as the images ({n})", len(self.labels))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one image."""
        height, width = self.images.shape[-2:]
        return (self.images.shape[1] if self.images.ndim == 4 else 1), height, width

    def scaled(self) -> Tensor:
        """All images as float32 [N, C, H, W] in [0, 1], in four times the memory of the bytes."""
        return self._scale(self.images)

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """The images at `indices` [b] as float32 [b, C, H, W] in [0, 1], and their labels [b].

        The bytes are gathered before they are scaled, so only the batch is held as floats.
        """
        check_instance("indices", indices, Tensor)
        if indices.dtype not in (torch.int64, torch.int32) or indices.ndim != 1:
            raise failure("indices", "be an int64 tensor [b]", _describe(indices))
        indices = indices.to(self.images.device)
        return self._scale(self.images[indices]), self.labels[indices]

    def to(self, device: str | torch.device) -> "Images":
        """A copy on another device."""
        return Images(self.images.to(device), self.labels.to(device))

    @staticmethod
    def _scale(images: Tensor) -> Tensor:
        with_channels = images if images.ndim == 4 else images.unsqueeze(1)
        return with_channels.to(torch.float32) / 255


@final
@dataclass(frozen=True, eq=False)
class DataSet:
    """Training and test images, with the names of their classes and constants for normalization.

    `mean` and `deviation` are those of the training pixels in [0, 1], one number per channel.

    Example:
        >>> from holdfast.lab.data import load
        >>> data = load("fashion-mnist-slice")
        >>> len(data.train), len(data.test), data.shape, data.n_classes
        (6000, 2000, (1, 28, 28), 10)
        >>> pixels, labels = data.train.batch(torch.arange(64))
        >>> data.normalize(pixels).shape
        torch.Size([64, 1, 28, 28])
    """

    name: str
    train: Images
    test: Images
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def __post_init__(self) -> None:
        for split, images in (("train", self.train), ("test", self.test)):
            check_instance(split, images, Images)
            if images.shape != self.shape:
                expected = f"have images of shape {self.shape}, like the training images"
                raise failure(split, expected, images.shape)
            _check_labels(split, images.labels, self.n_classes)
        for name, constants in (("mean", self.mean), ("deviation", self.deviation)):
            if len(constants) != self.shape[0]:
                expected = f"have one number per channel ({self.shape[0]})"
                raise failure(name, expected, len(constants))
        if min(self.deviation) <= 0:
            raise failure("deviation", "be above 0", self.deviation)

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return len(self.classes)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one image."""
        return self.train.shape

    def normalize(self, images: Tensor) -> Tensor:
        """`(images - mean) / deviation` per channel, for floating [b, C, H, W] in [0, 1]."""
        n_channels = self.shape[0]
        is_floating = isinstance(images, Tensor) and images.is_floating_point()
        if not is_floating or images.ndim != 4 or images.shape[1] != n_channels:
            expected = f"be a floating tensor [b, {n_channels}, H, W]"
            raise failure("images", expected, _describe(images))
        mean, deviation = (
            images.new_tensor(constants).view(-1, 1, 1) for constants in (self.mean, self.deviation)
        )
        return (images - mean) / deviation

    def to(self, device: str | torch.device) -> "DataSet":
        """A copy with all images on another device."""
        return replace(self, train=self.train.to(device), test=self.test.to(device))


def _check(name: str, tensor: object, dtype: torch.dtype, *shapes: str) -> None:
    check_instance(name, tensor, Tensor)
    assert isinstance(tensor, Tensor)
    if tensor.dtype != dtype:
        raise failure(name, f"be {str(dtype).removeprefix('torch.')}", tensor.dtype)
    if tensor.ndim not in [shape.count(",") + 1 for shape in shapes]:
        raise failure(name, f"have shape {' or '.join(shapes)}", tuple(tensor.shape))


def _check_labels(split: str, labels: Tensor, n_classes: int) -> None:
    if not len(labels) or labels.is_meta:
        return
    smallest, largest = int(labels.min()), int(labels.max())
    if smallest < 0 or largest >= n_classes:
        raise failure(split, f"have labels from 0 to {n_classes - 1}", f"{smallest} to {largest}")


def _describe(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} {list(value.shape)}"
    return type(value).__name__
