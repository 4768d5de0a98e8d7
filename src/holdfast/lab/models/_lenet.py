import torch
from torch import nn

from holdfast.lab.models._initialised import initialised


def lenet(*, generator: torch.Generator | None = None) -> nn.Sequential:
    """The paper's LeNet-style network for grey 28 x 28 images and 10 classes: 1,163,978 parameters.

    Two convolutions of 64 channels and 5 x 5 kernels, each with max-pooling by 2 and ReLU; a layer of 1024 units with ReLU and dropout 0.5; the
    classes. On a CPU, channels_last (`model.to(memory_format=torch.channels_last)`, and the images likewise) doubles its speed.

    Args:
        generator: for the first parameters; torch's global one by default.

    Reference: the paper, section 5 (Fashion-MNIST and MNIST).

    Example:
        >>> sum(parameter.numel() for parameter in lenet().parameters())
        1163978
    """
    return initialised(
        lambda: nn.Sequential(
            nn.Conv2d(1, 64, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(1024, 1024),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(1024, 10),
        ),
        generator,
    )
