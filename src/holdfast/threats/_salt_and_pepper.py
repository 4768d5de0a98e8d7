from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.checks import check_fraction
from holdfast.threats._attack_context import uniform
from holdfast.threats._corruption import Corruption


@final
@dataclass(frozen=True, kw_only=True)
class SaltAndPepper(Corruption):
    """Images with many of their pixels black or white.

    Each pixel is hit with probability `fraction`, independently, and becomes black (0) or white (1) with equal chance, in all its channels
    together.

    Reference: the paper's experiments, impulse feature corruption: salt and pepper on 90 % of the pixels.

    Example:
        >>> images, labels = torch.full((1, 3, 50, 50), 0.5), torch.tensor([3])
        >>> spoiled, _ = SaltAndPepper()(images, labels, torch.tensor([True]), generator=torch.Generator().manual_seed(0))
        >>> spoiled.unique().tolist(), round(float((spoiled != 0.5).float().mean()), 1)
        ([0.0, 0.5, 1.0], 0.9)
    """

    fraction: float = 0.9

    name = "salt-and-pepper"
    aim = "Test accuracy of training by the mean."
    needs_generator = True

    def __post_init__(self) -> None:
        check_fraction("fraction", self.fraction)

    def _corrupt(
        self, images: Tensor, labels: Tensor, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        n, _, height, width = images.shape
        drawn = uniform((n, 1, height, width), generator, images)
        black, white = drawn < self.fraction / 2, drawn < self.fraction
        impulse = torch.where(black, 0.0, 1.0).to(images.dtype)
        return torch.where(white, impulse, images), labels
