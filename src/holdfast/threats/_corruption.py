"""What every corruption is: a change of some samples of a batch."""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.checks import check_generator, check_mask, failure


class Corruption(ABC):
    """What happens to bad samples of a batch before the model sees them.

    Corruptions are immutable, leave the other samples as they are, bit for bit, and never change their input. Images are on image scale:
    0 is black and 1 is white, *before* they are normalised.
    """

    name: ClassVar[str]
    """The short name, as in `"salt-and-pepper(fraction=0.9)"`."""

    aim: ClassVar[str]
    """Which figure the corruption moves, in one sentence."""

    needs_generator: ClassVar[bool] = False
    """Whether a call draws random numbers."""

    def __call__(
        self,
        images: Tensor,
        labels: Tensor,
        mask: Tensor,
        *,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The batch with its bad samples corrupted.

        Args:
            images: [N, C, H, W] floating, on image scale.
            labels: [N] int64.
            mask: bool [N], True where a sample is bad; :func:`rows_to_samples` makes it from bad rows.
            generator: source of random numbers, on the images' device or the CPU; for corruptions that need one.
        """
        check_images(images)
        check_labels(labels, len(images))
        check_mask(mask, len(images), of="sample")
        if self.needs_generator:
            check_generator(generator)
        images, labels = images.detach().clone(), labels.clone()
        if bool(mask.any()):
            at, of = mask.to(images.device), mask.to(labels.device)
            images[at], labels[of] = self._corrupt(images[at], labels[of], generator)
        return images, labels

    @abstractmethod
    def _corrupt(
        self, images: Tensor, labels: Tensor, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        """The bad samples alone, images [b, C, H, W] and labels [b], as they become; called only if there are any."""


def check_images(images: object) -> None:
    """A batch of images on image scale."""
    if not isinstance(images, Tensor):
        raise failure("images", "be a floating tensor [N, C, H, W]", type(images).__name__)
    if not images.is_floating_point():
        raise failure(
            "images", "be floating, on the scale [0, 1] (divide bytes by 255 first)", images.dtype
        )
    if images.ndim != 4 or images.numel() == 0:
        raise failure("images", "have shape [N, C, H, W], none of it zero", tuple(images.shape))


def check_labels(labels: object, n: int) -> None:
    """One class for each image."""
    if not isinstance(labels, Tensor) or labels.dtype != torch.int64 or labels.shape != (n,):
        got = (
            f"{labels.dtype} {list(labels.shape)}"
            if isinstance(labels, Tensor)
            else type(labels).__name__
        )
        raise failure("labels", f"be an int64 tensor [{n}], one class an image", got)


def check_classes(labels: Tensor, n_classes: int) -> None:
    """Labels of that many classes."""
    if int(labels.min()) < 0 or int(labels.max()) >= n_classes:
        raise failure(
            "labels", f"be from 0 to {n_classes - 1}", f"{int(labels.min())} to {int(labels.max())}"
        )
