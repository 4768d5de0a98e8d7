from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.checks import check_count
from holdfast.threats._corruption import Corruption, check_classes


@final
@dataclass(frozen=True, kw_only=True)
class RandomLabels(Corruption):
    """Labels drawn by lot.

    Each bad sample gets a class uniformly among *all* `n_classes`, so that one in `n_classes` keeps its own.

    Reference: Zhang et al., *Understanding Deep Learning Requires Rethinking Generalization* (ICLR 2017), the experiments with partially
    corrupted labels.

    Example:
        >>> images, labels = torch.zeros(1000, 1, 1, 1), torch.zeros(1000, dtype=torch.int64)
        >>> mask, generator = torch.ones(1000, dtype=torch.bool), torch.Generator().manual_seed(0)
        >>> RandomLabels()(images, labels, mask, generator=generator)[1].unique().tolist()
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """

    n_classes: int = 10

    name = "random-labels"
    aim = "The length of the mean along the honest mean; at large shares, test accuracy of training by the mean."
    needs_generator = True

    def __post_init__(self) -> None:
        check_count("n_classes", self.n_classes, at_least=2)

    def _corrupt(
        self, images: Tensor, labels: Tensor, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        check_classes(labels, self.n_classes)
        assert generator is not None
        drawn = torch.randint(
            self.n_classes, tuple(labels.shape), generator=generator, device=generator.device
        )
        return images, drawn.to(labels.device)
