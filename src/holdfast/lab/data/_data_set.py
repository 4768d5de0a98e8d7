from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.checks import check_instance, failure
from holdfast.lab.data._images import Images


@final
@dataclass(frozen=True, eq=False)
class DataSet:
    """Images to train on and images to test on, with the names of their classes and the constants that normalise them.

    `mean` and `deviation` are those of the training pixels in [0, 1], one number a channel.

    Example:
        >>> from holdfast.lab.data import load
        >>> data = load("fashion-mnist-slice")
        >>> len(data.train), len(data.test), data.shape, data.n_classes
        (6000, 2000, (1, 28, 28), 10)
        >>> pixels, labels = data.train.batch(torch.arange(64))
        >>> data.normalise(pixels).shape
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
            if images.shape != self.train.shape:
                raise failure(
                    split,
                    f"have images of shape {self.train.shape}, like the training images",
                    images.shape,
                )
            _check_labels(split, images.labels, self.n_classes)
        for name, constants in (("mean", self.mean), ("deviation", self.deviation)):
            if len(constants) != self.shape[0]:
                raise failure(name, f"have one number a channel ({self.shape[0]})", len(constants))
        if min(self.deviation) <= 0:
            raise failure("deviation", "be above 0", self.deviation)

    @property
    def n_classes(self) -> int:
        """How many classes the labels tell apart."""
        return len(self.classes)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one image."""
        return self.train.shape

    def normalise(self, images: Tensor) -> Tensor:
        """`(images - mean) / deviation`, channel by channel, for floating images [b, C, H, W] with pixels in [0, 1]."""
        if (
            not isinstance(images, Tensor)
            or not images.is_floating_point()
            or images.ndim != 4
            or images.shape[1] != self.shape[0]
        ):
            got = (
                f"{images.dtype} {list(images.shape)}"
                if isinstance(images, Tensor)
                else type(images).__name__
            )
            raise failure("images", f"be a floating tensor [b, {self.shape[0]}, H, W]", got)
        mean, deviation = (
            images.new_tensor(constants).view(-1, 1, 1) for constants in (self.mean, self.deviation)
        )
        return (images - mean) / deviation

    def to(self, device: str | torch.device) -> "DataSet":
        """The same data set with all of its images on another device."""
        return DataSet(
            self.name,
            self.train.to(device),
            self.test.to(device),
            self.classes,
            self.mean,
            self.deviation,
        )


def _check_labels(split: str, labels: Tensor, n_classes: int) -> None:
    if (
        len(labels)
        and not labels.is_meta
        and not (int(labels.min()) >= 0 and int(labels.max()) < n_classes)
    ):
        raise failure(
            split,
            f"have labels from 0 to {n_classes - 1}",
            f"{int(labels.min())} to {int(labels.max())}",
        )
