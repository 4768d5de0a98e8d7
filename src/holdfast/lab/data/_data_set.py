"""Images with labels, and data sets made of them."""

from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from holdfast.checks import check_instance, failure


@final
@dataclass(frozen=True, eq=False)
class Images:
    """Images with their labels, stored as bytes; or samples of any shape, such as rows of a table.

    Shapes: `images` is uint8 or float32, [N, H, W] (gray), [N, C, H, W] or another [N, ...];
    `labels` is int64 [N]. Floats are used as they are; bytes are scaled to [0, 1].

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
        check_instance("images", self.images, Tensor)
        if self.images.dtype not in (torch.uint8, torch.float32):
            raise failure("images", "be uint8 or float32", self.images.dtype)
        if self.images.ndim < 2:
            raise failure("images", "have shape [N, ...]", tuple(self.images.shape))
        check_instance("labels", self.labels, Tensor)
        if self.labels.dtype != torch.int64:
            raise failure("labels", "be int64", self.labels.dtype)
        if self.labels.ndim != 1:
            raise failure("labels", "have shape [N]", tuple(self.labels.shape))
        n = len(self.images)
        if len(self.labels) != n:
            raise failure("labels", f"be as many as the images ({n})", len(self.labels))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height and width of one image, or the shape of another sample."""
        shape = tuple(self.images.shape[1:])
        return (1, *shape) if len(shape) == 2 else shape

    def scaled(self) -> Tensor:
        """All images as float32 [N, C, H, W], in four times the memory of the bytes."""
        return self._scale(self.images)

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """The images at `indices` [b] as float32 [b, C, H, W], and their labels [b].

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
        with_channels = images.unsqueeze(1) if images.ndim == 3 else images
        return with_channels / 255 if images.dtype == torch.uint8 else with_channels


@final
@dataclass(frozen=True, eq=False)
class DataSet:
    """Training and test images, with the names of their classes and constants for normalization.

    `mean` and `deviation` are those of the training pixels in [0, 1], one number per channel; of
    samples that are not images, one number for each index of their first dimension.

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
    def shape(self) -> tuple[int, ...]:
        """Channels, height and width of one image, or the shape of another sample."""
        return self.train.shape

    def normalize(self, images: Tensor) -> Tensor:
        """`(images - mean) / deviation` per channel, for floating [b, C, H, W]."""
        n_channels, *rest = self.shape
        is_floating = isinstance(images, Tensor) and images.is_floating_point()
        if not is_floating or images.ndim != 2 + len(rest) or images.shape[1] != n_channels:
            sides = ["H", "W"] if len(rest) == 2 else map(str, rest)
            expected = f"be a floating tensor [{', '.join(['b', str(n_channels), *sides])}]"
            raise failure("images", expected, _describe(images))
        mean, deviation = (
            images.new_tensor(constants).view(-1, *[1] * len(rest))
            for constants in (self.mean, self.deviation)
        )
        return (images - mean) / deviation

    def to(self, device: str | torch.device) -> "DataSet":
        """A copy with all images on another device."""
        return replace(self, train=self.train.to(device), test=self.test.to(device))


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
