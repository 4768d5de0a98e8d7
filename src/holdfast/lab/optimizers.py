"""Torch's optimizers as immutable descriptions, for use in a configuration."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import ClassVar, final

import torch
from torch import nn

from holdfast.checks import check_flag, check_nonnegative, check_positive, check_share, failure
from holdfast.registry import Registry

__all__ = ["Adam", "AdamW", "OptimizerSpec", "Sgd", "optimizers"]

_LARGEST = 1e30  # a larger rate or penalty times a gradient overflows float32


class OptimizerSpec(ABC):
    """Describes one of torch's optimizers with its learning rate; `build` creates it."""

    name: ClassVar[str]
    """The short name, as in `"sgd(momentum=0.9)"`."""

    @property
    @abstractmethod
    def lr(self) -> float:
        """The learning rate before any schedule."""

    @property
    @abstractmethod
    def weight_decay(self) -> float:
        """The L2 penalty, or the decay per unit of the learning rate."""

    @property
    @abstractmethod
    def is_plain(self) -> bool:
        """Whether a step is the rate times the direction, apart from weight decay.

        Only then is a memory in units of parameters exact.
        """

    @abstractmethod
    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """Creates the optimizer for these parameters."""


optimizers: Registry[OptimizerSpec] = Registry("optimizer")
"""Every optimizer by its short name: `optimizers.parse("sgd(lr=0.1, momentum=0.9)")`."""


@final
@optimizers.register
@dataclass(frozen=True, kw_only=True)
class Adam(OptimizerSpec):
    """`torch.optim.Adam` with its default betas.

    Args:
        lr: learning rate.
        weight_decay: L2 penalty.

    Example:
        >>> Adam().build([nn.Parameter(torch.zeros(2))]).defaults["lr"]
        0.001
    """

    lr: float = 0.001
    weight_decay: float = 0.0

    name = "adam"
    is_plain = False

    def __post_init__(self) -> None:
        _check_rates(self.lr, self.weight_decay)

    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Adam:
        return torch.optim.Adam(parameters, **asdict(self))


@final
@optimizers.register
@dataclass(frozen=True, kw_only=True)
class AdamW(OptimizerSpec):
    """`torch.optim.AdamW` with its default betas.

    Args:
        lr: learning rate.
        weight_decay: decay of the parameters per step, in multiples of the learning rate.

    Example:
        >>> AdamW().build([nn.Parameter(torch.zeros(2))]).defaults["weight_decay"]
        0.01
    """

    lr: float = 0.001
    weight_decay: float = 0.01

    name = "adamw"
    is_plain = False

    def __post_init__(self) -> None:
        _check_rates(self.lr, self.weight_decay)

    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.AdamW:
        return torch.optim.AdamW(parameters, **asdict(self))


@final
@optimizers.register
@dataclass(frozen=True, kw_only=True)
class Sgd(OptimizerSpec):
    """`torch.optim.SGD`: gradient descent, optionally with momentum.

    Args:
        lr: learning rate.
        momentum: in [0, 1).
        nesterov: whether to use Nesterov momentum.
        weight_decay: L2 penalty.

    Example:
        >>> Sgd(momentum=0.9).build([nn.Parameter(torch.zeros(2))]).defaults["lr"]
        0.01
    """

    lr: float = 0.01
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    name = "sgd"

    def __post_init__(self) -> None:
        _check_rates(self.lr, self.weight_decay)
        check_share("momentum", self.momentum, below=1.0)
        check_flag("nesterov", self.nesterov)
        if self.nesterov and not self.momentum:
            raise failure("momentum", "be above 0 with Nesterov momentum", self.momentum)

    @property
    def is_plain(self) -> bool:
        return self.momentum == 0.0

    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.SGD:
        return torch.optim.SGD(parameters, **asdict(self))


def _check_rates(lr: float, weight_decay: float) -> None:
    check_positive("lr", lr)
    check_nonnegative("weight_decay", weight_decay)
    for name, value in (("lr", lr), ("weight_decay", weight_decay)):
        if float(value) > _LARGEST:
            raise failure(name, f"be at most {_LARGEST:g}", value)
