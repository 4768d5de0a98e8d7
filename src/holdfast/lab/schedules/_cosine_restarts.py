from dataclasses import dataclass
from typing import final

from holdfast.checks import check_count
from holdfast.lab.schedules._cosine import half_cosine
from holdfast.lab.schedules._schedule import Schedule


@final
@dataclass(frozen=True, kw_only=True)
class CosineRestarts(Schedule):
    """Half a cosine from one to zero, again and again, each `growth` times as long as the one before.

    Args:
        period: length of the first in epochs.
        growth: by what the length is multiplied at each restart; 1 or more.

    Reference: Loshchilov and Hutter, *SGDR: Stochastic Gradient OptimizerSpec with Warm Restarts* (ICLR 2017), equation 5; the paper, section 5 (CIFAR-10).

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
            return half_cosine(epoch % self.period / self.period)
        start, length = 0, self.period
        while epoch >= start + length:
            start, length = start + length, length * self.growth
        return half_cosine((epoch - start) / length)
