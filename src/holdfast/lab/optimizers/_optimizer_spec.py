"""What every description of an optimizer is."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

from torch import nn
from torch.optim import Optimizer

from holdfast.checks import check_nonnegative, check_positive, failure

LARGEST = 1e30
"""Of a rate or a penalty; more does not fit float32 together with a gradient."""


def check_rates(lr: object, weight_decay: object) -> None:
    """A learning rate above 0 and a penalty of at least 0, neither beyond all measure."""
    check_positive("lr", lr)
    check_nonnegative("weight_decay", weight_decay)
    for name, value in (("lr", lr), ("weight_decay", weight_decay)):
        if float(value) > LARGEST:  # type: ignore[arg-type]
            raise failure(name, f"be at most {LARGEST:g}", value)


class OptimizerSpec(ABC):
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
        """Whether a step is the rate times the direction (and weight decay), so that a memory in units of parameters is exact."""

    @abstractmethod
    def build(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        """The optimizer for these parameters."""
