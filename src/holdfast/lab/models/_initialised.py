"""What all models share: the shape of their images, and first parameters that come from a generator."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from holdfast.checks import check_count, check_generator, failure

Model = TypeVar("Model", bound=nn.Module)

Shape = tuple[int, int, int]
"""Channels, height and width of images."""

GREY: Shape = (1, 28, 28)
COLOUR: Shape = (3, 32, 32)


def check_shape(shape: object, *, smallest: int) -> None:
    """Channels, height and width, the last two at least `smallest`."""
    if not isinstance(shape, tuple) or len(shape) != 3:
        raise failure("shape", "be (channels, height, width)", shape)
    check_count("shape[0]", shape[0], at_least=1)
    for i in (1, 2):
        check_count(f"shape[{i}]", shape[i], at_least=smallest)


def initialised(build: Callable[[], Model], generator: torch.Generator | None) -> Model:
    """The model that `build` makes, with torch's own initialisation drawn from the generator.

    Torch initialises from its global generator, which is put back afterwards. Without a generator, it is used as it stands.
    """
    if generator is None:
        return build()
    check_generator(generator)
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(seed)
        return build()
