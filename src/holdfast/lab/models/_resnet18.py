from typing import final

import torch
from torch import Tensor, nn

from holdfast.lab.models._initialised import COLOUR, Shape, check_shape, initialised


def resnet18(*, shape: Shape = COLOUR, generator: torch.Generator | None = None) -> nn.Sequential:
    """ResNet-18 for small images and 10 classes: 11,173,962 parameters for colour images.

    As He et al. describe it for large images, but with a 3 x 3 stem and without the first pooling, as is usual for CIFAR-10.

    Args:
        shape: channels, height and width of the images; any size will do.
        generator: for the first parameters; torch's global one by default.

    Reference: He et al., *Deep Residual Learning for Image Recognition* (CVPR 2016), table 1; the paper, section 5 (CIFAR-10).

    Example:
        >>> sum(parameter.numel() for parameter in resnet18().parameters())
        11173962
    """
    check_shape(shape, smallest=1)
    return initialised(lambda: _build(shape[0]), generator)


def _build(n_channels: int) -> nn.Sequential:
    blocks: list[nn.Module] = []
    n_in = 64
    for n_out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        blocks += [_Residual(n_in, n_out, stride), _Residual(n_out, n_out, 1)]
        n_in = n_out
    stem = [nn.Conv2d(n_channels, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


@final
class _Residual(nn.Module):
    """Two 3 x 3 convolutions beside the identity, or beside a 1 x 1 convolution where the shape changes."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(n_out),
            nn.ReLU(),
            nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(n_out),
        )
        self.identity: nn.Module = nn.Identity()
        if stride != 1 or n_in != n_out:
            self.identity = nn.Sequential(
                nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out)
            )

    def forward(self, x: Tensor) -> Tensor:
        """[n, n_out, H / stride, W / stride]."""
        return torch.relu(self.residual(x) + self.identity(x))
