from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.checks import check_count
from holdfast.threats._corruption import Corruption


@final
@dataclass(frozen=True, kw_only=True)
class TargetLabel(Corruption):
    """One label for all.

    Every bad sample gets the label `target`, whatever it shows.

    Reference: the paper's experiments, label corruption: labels set to class 8 (a bag, in Fashion-MNIST).

    Example:
        >>> TargetLabel()(torch.zeros(3, 1, 2, 2), torch.tensor([3, 5, 7]), torch.tensor([False, True, True]))[1]
        tensor([3, 8, 8])
    """

    target: int = 8

    name = "target-label"
    aim = "The share of test images taken for the target class in training by the mean, and with it test accuracy."

    def __post_init__(self) -> None:
        check_count("target", self.target)

    def _corrupt(
        self, images: Tensor, labels: Tensor, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        return images, torch.full_like(labels, self.target)
