import math

import torch
from torch import nn

from holdfast.lab.models._initialised import GREY, Shape, check_shape, initialised


def mlp(*, shape: Shape = GREY, generator: torch.Generator | None = None) -> nn.Sequential:
    """A network with one hidden layer of 128 units and ReLU for 10 classes: 101,770 parameters for grey images of 28 x 28 pixels.

    Args:
        shape: channels, height and width of the images.
        generator: for the first parameters; torch's global one by default.

    Example:
        >>> sum(parameter.numel() for parameter in mlp().parameters())
        101770
    """
    check_shape(shape, smallest=1)
    return initialised(
        lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(math.prod(shape), 128), nn.ReLU(), nn.Linear(128, 10)
        ),
        generator,
    )
