from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Generator, Tensor

from holdfast.checks import check_count, failure
from holdfast.threats._corruption import Batch, Corruption, corruptions


@final
@corruptions.register
@dataclass(frozen=True, kw_only=True)
class WrongLabels(Corruption):
    """Labels flipped, drawn at random, or all set to one class.

    Args:
        labels: "flip": y becomes `n_classes` - 1 - y, the same mistake for all images of a class.
            "random": uniform over *all* classes, so that one in `n_classes` keeps its own. A
            number: every bad sample gets this class.
        n_classes: number of classes; labels are from 0 to `n_classes` - 1.

    Reference: "flip": Fang et al., *Local Model Poisoning Attacks to Byzantine-Robust Federated
    Learning* (USENIX Security 2020), experiments. "random": Zhang et al., *Understanding Deep
    Learning Requires Rethinking Generalization* (ICLR 2017), partially corrupted labels. One class:
    the label corruption of the paper's experiments, class 8 (a bag, in Fashion-MNIST).

    Example:
        >>> images, labels = torch.zeros(3, 1, 2, 2), torch.tensor([3, 5, 7])
        >>> WrongLabels()(images, labels, torch.tensor([False, True, True]))[1]
        tensor([3, 4, 2])
        >>> WrongLabels(labels=8)(images, labels, torch.tensor([False, True, True]))[1]
        tensor([3, 8, 8])
    """

    labels: Literal["flip", "random"] | int = "flip"
    n_classes: int = 10

    name = "wrong-labels"
    is_of_labels = True
    aim = "Test accuracy of training by the mean; with one class, how often it is predicted."

    def __post_init__(self) -> None:
        check_count("n_classes", self.n_classes, at_least=2)
        is_class = type(self.labels) is int and 0 <= self.labels < self.n_classes
        if self.labels not in ("flip", "random") and not is_class:
            known = f"be 'flip', 'random' or a class from 0 to {self.n_classes - 1}"
            raise failure("labels", known, repr(self.labels))

    @property
    def needs_generator(self) -> bool:
        return self.labels == "random"

    @property
    def target(self) -> int | None:
        """The class that all bad samples get, if there is one."""
        return self.labels if isinstance(self.labels, int) else None

    def _corrupt(self, images: Tensor, labels: Tensor, generator: Generator | None) -> Batch:
        lowest, highest = int(labels.min()), int(labels.max())
        if lowest < 0 or highest >= self.n_classes:
            raise failure("labels", f"be from 0 to {self.n_classes - 1}", f"{lowest} to {highest}")
        if isinstance(self.labels, int):
            return images, torch.full_like(labels, self.labels)
        if self.labels == "flip":
            return images, self.n_classes - 1 - labels
        assert generator is not None
        at = generator.device
        drawn = torch.randint(self.n_classes, labels.shape, generator=generator, device=at)
        return images, drawn.to(labels.device)
