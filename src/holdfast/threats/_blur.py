import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor
from torch.nn.functional import conv2d, pad

from holdfast.checks import check_positive
from holdfast.geometry import working_dtype
from holdfast.threats._corruption import Batch, Corruption, corruptions


@final
@corruptions.register
@dataclass(frozen=True, kw_only=True)
class Blur(Corruption):
    r"""Images out of focus: each channel smoothed by a Gaussian.

    Convolution with the normalized kernel :math:`\exp(-(a^2 + b^2) / 2\sigma^2)`, one axis after
    the other, where :math:`\sigma` is `sigma` pixels. At the edges the image is mirrored (without
    repeating the edge). The kernel ends at :math:`3\sigma`, or where the image is too small to be
    mirrored that far. The default of 5 turns an image of 28 by 28 pixels into one soft spot.

    Reference: feature corruption by blur in the paper's experiments, which do not state its width.

    Example:
        >>> images = torch.zeros(1, 1, 9, 9)
        >>> images[0, 0, 4, 4] = 1.0
        >>> blurred, _ = Blur(sigma=1.0)(images, torch.tensor([3]), torch.tensor([True]))
        >>> round(float(blurred[0, 0, 4, 4]), 3), round(float(blurred.sum()), 3)
        (0.159, 1.0)
    """

    sigma: float = 5.0

    name = "blur"
    aim = "Test accuracy of training by the mean."

    def __post_init__(self) -> None:
        check_positive("sigma", self.sigma)

    def _corrupt(self, images: Tensor, labels: Tensor, generator: Generator | None) -> Batch:
        smooth = images.to(working_dtype(images.dtype))
        for _ in range(2):
            smooth = self._along_last(smooth).transpose(2, 3)
        return smooth.to(images.dtype), labels

    def _along_last(self, images: Tensor) -> Tensor:
        """The images smoothed along their last axis."""
        n, channels, height, width = images.shape
        radius = min(math.ceil(3 * self.sigma), width - 1)
        places = torch.arange(-radius, radius + 1, dtype=images.dtype, device=images.device)
        kernel = (-0.5 * (places / self.sigma).square()).exp()
        kernel = (kernel / kernel.sum()).view(1, 1, 1, -1)
        lines = images.reshape(n * channels, 1, height, width)
        mirrored = pad(lines, (radius, radius, 0, 0), mode="reflect")
        return conv2d(mirrored, kernel).view(n, channels, height, width)
