"""Schedules of the learning rate."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

from holdfast.checks import check_count, check_fraction
from holdfast.registry import Registry

__all__ = ["Constant", "Cosine", "CosineRestarts", "Exponential", "Schedule", "schedules"]


class Schedule(ABC):
    """A factor of the learning rate that depends on the epoch only; a schedule has no state."""

    name: ClassVar[str]
    """The short name, as in `"exponential(decay=0.99)"`."""

    goes_to_zero: ClassVar[bool] = False
    """Whether the rate comes near zero, where a memory in units of parameters is of no use."""

    spans_run: ClassVar[bool] = False
    """Whether the factor depends on the length of the run, which then cannot be extended."""

    @abstractmethod
    def factor(self, epoch: float, n_epochs: float) -> float:
        """The factor after `epoch` of `n_epochs` passes over the data; fractions are allowed."""


schedules: Registry[Schedule] = Registry("schedule")
"""Every schedule by its short name: `schedules.parse("exponential(decay=0.99)")`."""


@final
@schedules.register
@dataclass(frozen=True, kw_only=True)
class Constant(Schedule):
    """A constant learning rate.

    Example:
        >>> Constant().factor(3.5, 10)
        1.0
    """

    name = "constant"

    def factor(self, epoch: float, n_epochs: float) -> float:
        return 1.0


@final
@schedules.register
@dataclass(frozen=True, kw_only=True)
class Cosine(Schedule):
    r"""Half a cosine from 1 at the start to 0 at the end.

    At epoch e of E the factor is :math:`(1 + \cos(\pi e / E)) / 2`.

    Reference: Loshchilov and Hutter, *SGDR: Stochastic Gradient Descent with Warm Restarts* (ICLR
    2017), equation 5.

    Example:
        >>> Cosine().factor(5, 10)
        0.5
    """

    name = "cosine"
    goes_to_zero = True
    spans_run = True

    def factor(self, epoch: float, n_epochs: float) -> float:
        return _half_cosine(epoch / n_epochs)


@final
@schedules.register
@dataclass(frozen=True, kw_only=True)
class CosineRestarts(Schedule):
    """Periods of half a cosine from 1 to 0, each `growth` times as long as the one before.

    Args:
        period: length of the first period in epochs.
        growth: factor of the length at each restart; 1 or more.

    Reference: Loshchilov and Hutter, *SGDR: Stochastic Gradient Descent with Warm Restarts* (ICLR
    2017), equation 5; the paper, section 5 (CIFAR-10).

    Example:
        >>> schedule = CosineRestarts(period=10, growth=2)
        >>> schedule.factor(5, 200), schedule.factor(10, 200), schedule.factor(20, 200)
        (0.5, 1.0, 0.5)
    """

    period: int = 10
    growth: int = 2

    name = "cosine-restarts"
    goes_to_zero = True

    def __post_init__(self) -> None:
        check_count("period", self.period, at_least=1)
        check_count("growth", self.growth, at_least=1)

    def factor(self, epoch: float, n_epochs: float) -> float:
        if self.growth == 1:
            return _half_cosine(epoch % self.period / self.period)
        start, length = 0, self.period
        while epoch >= start + length:
            start, length = start + length, length * self.growth
        return _half_cosine((epoch - start) / length)


@final
@schedules.register
@dataclass(frozen=True, kw_only=True)
class Exponential(Schedule):
    r"""Exponential decay: the rate is multiplied by `decay` after every epoch.

    In epoch e the factor is :math:`q^{\lfloor e \rfloor}`, where q is `decay`.

    Args:
        decay: factor per epoch, in (0, 1]; 0.99 in the paper.

    Reference: the paper, section 5 (Fashion-MNIST).

    Example:
        >>> Exponential(decay=0.5).factor(2.7, 10)
        0.25
    """

    decay: float = 0.99

    name = "exponential"

    def __post_init__(self) -> None:
        check_fraction("decay", self.decay)

    def factor(self, epoch: float, n_epochs: float) -> float:
        return float(self.decay ** math.floor(epoch))


def _half_cosine(progress: float) -> float:
    # By the sine, which is exact at the middle: 0.5, where the cosine of pi / 2 is not quite zero.
    return (1.0 - math.sin(math.pi * (min(progress, 1.0) - 0.5))) / 2
