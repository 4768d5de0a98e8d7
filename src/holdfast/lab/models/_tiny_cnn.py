import torch
from torch import nn

from holdfast.lab.models._initialised import GREY, Shape, check_shape, initialised


def tiny_cnn(*, shape: Shape = GREY, generator: torch.Generator | None = None) -> nn.Sequential:
    """The paper's tiny network for 10 classes: 412 parameters for grey images of 28 x 28 pixels.

    Four convolutions of 3 channels and 3 x 3 kernels, each with stride 2, a border of one pixel and GELU; the classes.

    Args:
        shape: channels, height and width of the images.
        generator: for the first parameters; torch's global one by default.

    Reference: the paper, the experiments on the relative residual.

    Example:
        >>> sum(parameter.numel() for parameter in tiny_cnn().parameters())
        412
    """
    check_shape(shape, smallest=1)
    height, width = (-(-side // 16) for side in shape[1:])  # four times half of it, rounded up

    def build() -> nn.Sequential:
        layers: list[nn.Module] = []
        for n_channels in (shape[0], 3, 3, 3):
            layers += [nn.Conv2d(n_channels, 3, 3, stride=2, padding=1), nn.GELU()]
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(3 * height * width, 10))

    return initialised(build, generator)
