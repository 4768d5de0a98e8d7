"""Classifiers of images, by default into 10 classes: the models of the paper, and four simpler ones."""

import math
from collections.abc import Callable
from typing import Protocol, TypeVar, final

import torch
from torch import Tensor, nn

from holdfast.checks import check_count, check_generator, failure
from holdfast.registry import Names

__all__ = [
    "lenet",
    "logistic_regression",
    "mlp",
    "models",
    "resnet_18",
    "small_cnn",
    "small_mlp",
    "tiny_cnn",
]

M = TypeVar("M")
Shape = tuple[int, ...]  # channels, height, width; any other for models without convolutions

GRAY: Shape = (1, 28, 28)
COLOR: Shape = (3, 32, 32)


class Architecture(Protocol):
    """Builds a model with one output per class.

    Args:
        shape: channels, height and width of the images.
        n_classes: number of outputs.
        generator: draws the initial parameters; torch's global generator by default.
    """

    def __call__(
        self,
        *,
        shape: Shape = ...,
        n_classes: int = ...,
        generator: torch.Generator | None = None,
    ) -> nn.Module: ...


models: Names[Architecture] = Names("model")
"""Every architecture by its short name."""


@models.register
def lenet(
    *, shape: Shape = GRAY, n_classes: int = 10, generator: torch.Generator | None = None
) -> nn.Sequential:
    """The paper's LeNet-style network: 1,163,978 parameters for gray images of 28 x 28 pixels.

    Two convolutions with 64 channels and 5 x 5 kernels, each followed by max-pooling by 2 and ReLU;
    a layer of 1024 units with ReLU and dropout 0.5; a linear layer. Needs images of at least
    16 x 16 pixels. On a CPU, channels_last (`model.to(memory_format=torch.channels_last)`, and the
    same for images) doubles the speed.

    Reference: the paper, section 5 (Fashion-MNIST and MNIST).

    Example:
        >>> sum(parameter.numel() for parameter in lenet().parameters())
        1163978
    """
    _check_shape(shape, smallest=16)
    n_channels, *sides = shape
    # A convolution without padding removes 4 pixels, pooling halves the rest.
    height, width = (((side - 4) // 2 - 4) // 2 for side in sides)

    def build() -> nn.Sequential:
        layers: list[nn.Module] = []
        for n_in in (n_channels, 64):
            layers += [nn.Conv2d(n_in, 64, 5), nn.MaxPool2d(2), nn.ReLU()]
        layers += [nn.Flatten(), nn.Linear(64 * height * width, 1024), nn.ReLU()]
        return nn.Sequential(*layers, nn.Dropout(0.5), nn.Linear(1024, n_classes))

    return initialized(build, generator)


@models.register
def logistic_regression(
    *, shape: Shape = GRAY, n_classes: int = 10, generator: torch.Generator | None = None
) -> nn.Sequential:
    """One linear layer with a convex loss: 7,850 parameters for gray images of 28 x 28 pixels.

    Example:
        >>> sum(parameter.numel() for parameter in logistic_regression().parameters())
        7850
    """
    _check_lengths(shape)
    n_pixels = math.prod(shape)
    return initialized(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(n_pixels, n_classes)), generator
    )


@models.register
def mlp(
    *, shape: Shape = GRAY, n_classes: int = 10, generator: torch.Generator | None = None
) -> nn.Sequential:
    """One hidden layer of 128 units: 101,770 parameters for gray images of 28 x 28 pixels.

    Example:
        >>> sum(parameter.numel() for parameter in mlp().parameters())
        101770
    """
    return _one_hidden_layer(128, shape, n_classes, generator)


@models.register
def resnet_18(
    *, shape: Shape = COLOR, n_classes: int = 10, generator: torch.Generator | None = None
) -> nn.Sequential:
    """ResNet-18 for small images: 11,173,962 parameters for color images.

    As in the original paper, but with a 3 x 3 stem and without the first pooling, as is usual for
    CIFAR-10.

    Reference: He et al., *Deep Residual Learning for Image Recognition* (CVPR 2016), table 1; the
    paper, section 5 (CIFAR-10).

    Example:
        >>> sum(parameter.numel() for parameter in resnet_18().parameters())
        11173962
    """
    _check_shape(shape)

    def build() -> nn.Sequential:
        # The order of construction decides which random numbers a layer gets.
        blocks: list[nn.Module] = []
        for n_in, n_out, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
            blocks += [_Residual(n_in, n_out, stride), _Residual(n_out, n_out, 1)]
        stem = [nn.Conv2d(shape[0], 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
        head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, n_classes)]
        return nn.Sequential(*stem, *blocks, *head)

    return initialized(build, generator)


@models.register
def small_cnn(
    *, shape: Shape = COLOR, n_classes: int = 10, generator: torch.Generator | None = None
) -> nn.Sequential:
    """Three convolutions for small images: 19,466 parameters for color images.

    Convolutions with 16, 32 and 32 channels and 3 x 3 kernels, each followed by ReLU and
    max-pooling by 2; a linear layer. Needs images of at least 8 x 8 pixels.

    Example:
        >>> sum(parameter.numel() for parameter in small_cnn().parameters())
        19466
    """
    _check_shape(shape, smallest=8)
    n_channels, height, width = shape

    def build() -> nn.Sequential:
        layers: list[nn.Module] = []
        for n_in, n_out in ((n_channels, 16), (16, 32), (32, 32)):
            layers += [nn.Conv2d(n_in, n_out, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        return nn.Sequential(
            *layers, nn.Flatten(), nn.Linear(32 * (height // 8) * (width // 8), n_classes)
        )

    return initialized(build, generator)


@models.register
def small_mlp(
    *, shape: Shape = GRAY, n_classes: int = 10, generator: torch.Generator | None = None
) -> nn.Sequential:
    """One hidden layer of 64 units: 50,890 parameters for gray images of 28 x 28 pixels.

    Example:
        >>> sum(parameter.numel() for parameter in small_mlp().parameters())
        50890
    """
    return _one_hidden_layer(64, shape, n_classes, generator)


@models.register
def tiny_cnn(
    *, shape: Shape = GRAY, n_classes: int = 10, generator: torch.Generator | None = None
) -> nn.Sequential:
    """The paper's tiny network: 412 parameters for gray images of 28 x 28 pixels.

    Four convolutions with 3 channels, 3 x 3 kernels, stride 2, padding 1 and GELU; a linear layer.

    Reference: the paper, the experiments on the relative residual.

    Example:
        >>> sum(parameter.numel() for parameter in tiny_cnn().parameters())
        412
    """
    _check_shape(shape)
    height, width = (-(-side // 16) for side in shape[1:])  # halved four times, rounded up

    def build() -> nn.Sequential:
        layers: list[nn.Module] = []
        for n_channels in (shape[0], 3, 3, 3):
            layers += [nn.Conv2d(n_channels, 3, 3, stride=2, padding=1), nn.GELU()]
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(3 * height * width, n_classes))

    return initialized(build, generator)


def _one_hidden_layer(
    n_hidden: int, shape: Shape, n_classes: int, generator: torch.Generator | None
) -> nn.Sequential:
    _check_lengths(shape)

    def build() -> nn.Sequential:
        hidden = [nn.Flatten(), nn.Linear(math.prod(shape), n_hidden), nn.ReLU()]
        return nn.Sequential(*hidden, nn.Linear(n_hidden, n_classes))

    return initialized(build, generator)


def initialized(build: Callable[[], M], generator: torch.Generator | None) -> M:
    """Calls `build` with torch's global CPU generator seeded from `generator`.

    Torch's layers initialize from the global generator; its state is restored afterwards. With
    None, `build` uses the global generator as it is.
    """
    if generator is None:
        return build()
    check_generator(generator)
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(seed)
        return build()


@final
class _Residual(nn.Module):
    """Two 3 x 3 convolutions plus the identity, or a 1 x 1 convolution if the shape changes."""

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
            shortcut = nn.Conv2d(n_in, n_out, 1, stride, bias=False)
            self.identity = nn.Sequential(shortcut, nn.BatchNorm2d(n_out))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.residual(x) + self.identity(x))


def _check_shape(shape: object, *, smallest: int = 1) -> None:
    """Check the shape of images for convolutions."""
    _check_lengths(shape)
    assert isinstance(shape, tuple)
    if len(shape) != 3 or min(shape[1:]) < smallest:
        sides = "(channels, height, width)" + (f", {smallest} or more" if smallest > 1 else "")
        needed = f"be {sides}, for this model; mlp and logistic-regression take any"
        raise failure("shape", needed, shape)


def _check_lengths(shape: object) -> None:
    if not isinstance(shape, tuple) or not shape:
        raise failure("shape", "be the shape of a sample, such as (1, 28, 28)", shape)
    for i, length in enumerate(shape):
        check_count(f"shape[{i}]", length, at_least=1)
