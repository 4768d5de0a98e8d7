from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor

from holdfast.checks import check_count, check_nonnegative, failure
from holdfast.threats._corruption import Batch, Corruption, check_images, check_labels, corruptions


@final
@corruptions.register
@dataclass(frozen=True, kw_only=True)
class Backdoor(Corruption):
    """A trigger in the corner of the image, and the label of the attacker's choice.

    Bad samples get a square of `size` by `size` pixels of brightness `value` in the lower right
    corner, in all channels, and the label `target`. The trained model works as usual on images
    without the trigger.

    Reference: Gu et al., *BadNets: Identifying Vulnerabilities in the Machine Learning Model Supply
    Chain* (arXiv:1708.06733), the pattern backdoor on MNIST.

    Example:
        >>> images, labels = torch.zeros(2, 1, 2, 2), torch.tensor([3, 5])
        >>> images, labels = Backdoor(size=1)(images, labels, torch.tensor([False, True]))
        >>> images[1, 0], labels
        (tensor([[0., 0.],
                [0., 1.]]), tensor([3, 0]))
    """

    target: int = 0
    size: int = 3
    value: float = 1.0

    name = "backdoor"
    aim = "The success rate: how often images with the trigger are predicted as the target class."

    def __post_init__(self) -> None:
        check_count("target", self.target)
        check_count("size", self.size, at_least=1)
        check_nonnegative("value", self.value)

    def stamp(self, images: Tensor) -> Tensor:
        """A copy of the images [N, C, H, W] with the trigger on each."""
        check_images(images)
        if min(images.shape[2:]) < self.size:
            needed = f"have at least {self.size} by {self.size} pixels (needed by {self!r})"
            raise failure("images", needed, tuple(images.shape))
        stamped = images.detach().clone()
        stamped[:, :, -self.size :, -self.size :] = self.value
        return stamped

    def success_rate(
        self, predict: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor
    ) -> float:
        """Share of images of other classes predicted as the target class once they are stamped.

        Args:
            predict: from images [N, C, H, W] on image scale to classes [N] or scores [N, classes].
            images: [N, C, H, W] floating, on image scale.
            labels: [N] int64.
        """
        check_images(images)
        check_labels(labels, len(images))
        others = labels != self.target
        if not bool(others.any()):
            raise failure("labels", f"hold another class than the target {self.target}", "none")
        predicted = predict(self.stamp(images[others.to(images.device)]))
        classes = predicted.argmax(1) if predicted.ndim == 2 else predicted
        return float((classes == self.target).double().mean())

    def _corrupt(self, images: Tensor, labels: Tensor, generator: Generator | None) -> Batch:
        return self.stamp(images), torch.full_like(labels, self.target)
