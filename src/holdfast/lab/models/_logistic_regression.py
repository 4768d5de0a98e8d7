import math

import torch
from torch import nn

from holdfast.lab.models._initialised import GREY, Shape, check_shape, initialised


def logistic_regression(
    *, shape: Shape = GREY, generator: torch.Generator | None = None
) -> nn.Sequential:
    """One linear layer from pixels to 10 classes: 7,850 parameters for grey images of 28 x 28 pixels, and a convex loss.

    Args:
        shape: channels, height and width of the images.
        generator: for the first parameters; torch's global one by default.

    Example:
        >>> sum(parameter.numel() for parameter in logistic_regression().parameters())
        7850
    """
    check_shape(shape, smallest=1)
    return initialised(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 10)), generator
    )
