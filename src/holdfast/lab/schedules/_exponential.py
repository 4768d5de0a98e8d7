import math
from dataclasses import dataclass
from typing import final

from holdfast.checks import check_fraction
from holdfast.lab.schedules._schedule import Schedule


@final
@dataclass(frozen=True, kw_only=True)
class Exponential(Schedule):
    r"""A little less with each epoch: :math:`q^{\lfloor e \rfloor}`, where q is `decay` and e the epoch.

    Args:
        decay: what remains after an epoch, in (0, 1]; 0.99 in the paper.

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
