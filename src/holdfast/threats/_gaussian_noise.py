from dataclasses import dataclass
from typing import final

from torch import Generator, Tensor

from holdfast.checks import check_positive
from holdfast.threats._attack_context import standard_normal
from holdfast.threats._corruption import Batch, Corruption, corruptions


@final
@corruptions.register
@dataclass(frozen=True, kw_only=True)
class GaussianNoise(Corruption):
    r"""Images with Gaussian noise on every entry.

    :math:`x + \sigma \epsilon`, where :math:`\sigma` is `deviation`. The result is *not* clamped to
    [0, 1]: the default is noise of variance 100, which hides the image completely.

    Reference: the additive feature corruption N(0, 100) of the paper's experiments.

    Example:
        >>> images, labels = torch.zeros(2, 1, 4, 4), torch.tensor([3, 5])
        >>> mask, generator = torch.tensor([False, True]), torch.Generator().manual_seed(0)
        >>> noisy, _ = GaussianNoise()(images, labels, mask, generator=generator)
        >>> noisy.abs().amax((1, 2, 3)) > 1
        tensor([False,  True])
    """

    deviation: float = 10.0

    name = "gaussian-noise"
    aim = "Test accuracy of training by the mean."
    needs_generator = True

    def __post_init__(self) -> None:
        check_positive("deviation", self.deviation)

    def _corrupt(self, images: Tensor, labels: Tensor, generator: Generator | None) -> Batch:
        noise = standard_normal(tuple(images.shape), generator, images)
        return (images + self.deviation * noise).to(images.dtype), labels
