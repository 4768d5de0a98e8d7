import math
from dataclasses import dataclass
from typing import final

from holdfast.lab.schedules._schedule import Schedule


@final
@dataclass(frozen=True, kw_only=True)
class Cosine(Schedule):
    r"""Half a cosine from one to zero: :math:`(1 + \cos(\pi e / E)) / 2` at epoch e of E.

    Reference: Loshchilov and Hutter, *SGDR: Stochastic Gradient OptimizerSpec with Warm Restarts* (ICLR 2017), equation 5.

    Example:
        >>> Cosine().factor(5, 10)
        0.5
    """

    name = "cosine"
    goes_to_zero = True

    def factor(self, epoch: float, n_epochs: float) -> float:
        return half_cosine(epoch / n_epochs)


def half_cosine(progress: float) -> float:
    """From one at 0 to zero at 1, and zero after that; exact at the middle."""
    return (1.0 - math.sin(math.pi * (min(progress, 1.0) - 0.5))) / 2
