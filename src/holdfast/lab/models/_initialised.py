"""Models whose first parameters come from a generator."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from holdfast._checks import check_generator

Model = TypeVar("Model", bound=nn.Module)


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
