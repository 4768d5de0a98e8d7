from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor

from holdfast.checks import check_fraction
from holdfast.threats._attack_context import uniform
from holdfast.threats._corruption import Batch, Corruption, corruptions


@final
@corruptions.register
@dataclass(frozen=True, kw_only=True)
class SaltAndPepper(Corruption):
    """Images with many of their pixels black or white.

    Each pixel is hit with probability `fraction`, independently, and becomes black (0) or white (1)
    with equal probability, in all channels together.

    Reference: the impulse feature corruption of the paper's experiments, on 90 % of the pixels.

    Example:
        >>> images, labels = torch.full((1, 3, 50, 50), 0.5), torch.tensor([3])
        >>> mask, generator = torch.tensor([True]), torch.Generator().manual_seed(0)
        >>> spoiled, _ = SaltAndPepper()(images, labels, mask, generator=generator)
        >>> spoiled.unique().tolist(), round(float((spoiled != 0.5).float().mean()), 1)
        ([0.0, 0.5, 1.0], 0.9)
    """

    fraction: float = 0.9

    name = "salt-and-pepper"
    aim = "Test accuracy of training by the mean."
    needs_generator = True

    def __post_init__(self) -> None:
        check_fraction("fraction", self.fraction)

    def _corrupt(self, images: Tensor, labels: Tensor, generator: Generator | None) -> Batch:
        n, _, height, width = images.shape
        drawn = uniform((n, 1, height, width), generator, images)
        impulse = torch.where(drawn < self.fraction / 2, 0.0, 1.0).to(images.dtype)
        return torch.where(drawn < self.fraction, impulse, images), labels
