from dataclasses import dataclass
from typing import final

from holdfast.lab.schedules._schedule import Schedule


@final
@dataclass(frozen=True, kw_only=True)
class Constant(Schedule):
    """The same rate throughout.

    Example:
        >>> Constant().factor(3.5, 10)
        1.0
    """

    name = "constant"

    def factor(self, epoch: float, n_epochs: float) -> float:
        return 1.0
