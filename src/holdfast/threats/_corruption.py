from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor

from holdfast.checks import check_generator, check_mask, dtype_and_shape_of, dtype_of, failure
from holdfast.registry import Registry

Batch = tuple[Tensor, Tensor]
"""Images [N, C, H, W] and labels [N]."""


class Corruption(ABC):
    """Changes the bad samples of a batch before the model sees them.

    Corruptions are immutable and never change their input; other samples are returned bitwise
    unchanged. Images are on image scale: 0 is black and 1 is white, *before* they are normalized.
    """

    name: ClassVar[str]
    """The name in texts such as `"salt-and-pepper(fraction=0.9)"`."""

    aim: ClassVar[str]
    """The quantity that the corruption changes, in one sentence."""

    is_of_labels: ClassVar[bool] = False
    """Whether only labels change, so that samples may have any shape and scale."""

    @property
    def needs_generator(self) -> bool:
        """Whether a call draws random numbers."""
        return False

    def __call__(
        self, images: Tensor, labels: Tensor, mask: Tensor, *, generator: Generator | None = None
    ) -> Batch:
        """Images and labels of the batch with its bad samples corrupted.

        Args:
            images: [N, C, H, W] floating, on image scale; samples of any shape [N, ...] if only
                labels are corrupted.
            labels: [N] int64.
            mask: bool [N], True where a sample is bad; see :func:`rows_to_samples`.
            generator: for corruptions that need one, on the images' device or the CPU.
        """
        if not self.is_of_labels:
            check_images(images)
        elif not isinstance(images, Tensor):
            raise failure("images", "be a tensor [N, ...]", type(images).__name__)
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
    def _corrupt(self, images: Tensor, labels: Tensor, generator: Generator | None) -> Batch:
        """Corrupt images [b, C, H, W] and labels [b], all of them bad; b is at least 1."""


corruptions: Registry[Corruption] = Registry("corruption")
"""All corruptions by name: `corruptions.parse("salt-and-pepper(fraction=0.5)")`."""


def check_images(images: object) -> None:
    """Check for a batch of images on image scale."""
    if not isinstance(images, Tensor):
        raise failure("images", "be a floating tensor [N, C, H, W]", type(images).__name__)
    if not images.is_floating_point():
        scale = "be floating, on the scale [0, 1] (divide bytes by 255 first)"
        raise failure("images", scale, images.dtype)
    if images.ndim != 4 or images.numel() == 0:
        raise failure("images", "have shape [N, C, H, W], none of it zero", tuple(images.shape))


def check_labels(labels: Any, n: int) -> None:
    """Check for one class per image."""
    if dtype_of(labels) != torch.int64 or labels.shape != (n,):
        requirement = f"be an int64 tensor [{n}], one class per image"
        raise failure("labels", requirement, dtype_and_shape_of(labels))
