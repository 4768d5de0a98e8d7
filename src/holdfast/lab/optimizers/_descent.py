"""What every description of an optimizer is."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

from torch import nn
from torch.optim import Optimizer


class Descent(ABC):
    """Describes an optimizer of torch, with its learning rate; `build` makes it."""

    name: ClassVar[str]
    """The short name, as in `"sgd(momentum=0.9)"`."""

    @property
    @abstractmethod
    def lr(self) -> float:
        """The learning rate before any schedule."""

    @property
    @abstractmethod
    def is_plain(self) -> bool:
        """Whether a step is exactly the rate times the direction, so that a memory in units of parameters is exact."""

    @abstractmethod
    def build(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        """The optimizer for these parameters."""
