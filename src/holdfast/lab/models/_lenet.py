import torch
from torch import nn

from holdfast.lab.models._initialised import GREY, Shape, check_shape, initialised


def lenet(*, shape: Shape = GREY, generator: torch.Generator | None = None) -> nn.Sequential:
    """The paper's LeNet-style network for 10 classes: 1,163,978 parameters for grey images of 28 x 28 pixels.

    Two convolutions of 64 channels and 5 x 5 kernels, each with max-pooling by 2 and ReLU; a layer of 1024 units with ReLU and dropout 0.5; the
    classes. On a CPU, channels_last (`model.to(memory_format=torch.channels_last)`, and the images likewise) doubles its speed.

    Args:
        shape: channels, height and width of the images; at least 16 pixels a side.
        generator: for the first parameters; torch's global one by default.

    Reference: the paper, section 5 (Fashion-MNIST and MNIST).

    Example:
        >>> sum(parameter.numel() for parameter in lenet().parameters())
        1163978
    """
    check_shape(shape, smallest=16)
    n_channels, *sides = shape
    height, width = (
        ((side - 4) // 2 - 4) // 2 for side in sides
    )  # a convolution takes 4 pixels, a pooling half of them
    return initialised(
        lambda: nn.Sequential(
            nn.Conv2d(n_channels, 64, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * height * width, 1024),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(1024, 10),
        ),
        generator,
    )
