from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.checks import check_count
from holdfast.threats._corruption import Corruption, check_classes


@final
@dataclass(frozen=True, kw_only=True)
class LabelFlip(Corruption):
    """Labels counted from the other end.

    y becomes `n_classes` - 1 - y: the same mistake for all images of a class.

    Reference: Fang et al., *Local Model Poisoning Attacks to Byzantine-Robust Federated Learning* (USENIX Security 2020), the label flipping attack
    of the experiments.

    Example:
        >>> LabelFlip()(torch.zeros(3, 1, 2, 2), torch.tensor([3, 5, 7]), torch.tensor([False, True, True]))[1]
        tensor([3, 4, 2])
    """

    n_classes: int = 10

    name = "label-flip"
    aim = "Test accuracy of training by the mean."

    def __post_init__(self) -> None:
        check_count("n_classes", self.n_classes, at_least=2)

    def _corrupt(
        self, images: Tensor, labels: Tensor, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        check_classes(labels, self.n_classes)
        return images, self.n_classes - 1 - labels
