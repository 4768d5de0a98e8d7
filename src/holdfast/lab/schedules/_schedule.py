"""What every schedule is: a factor of the learning rate."""

from abc import ABC, abstractmethod
from typing import ClassVar


class Schedule(ABC):
    """What the learning rate is multiplied by as training goes on. It has no state: where a run stands decides alone."""

    name: ClassVar[str]
    """The short name, as in `"exponential(decay=0.99)"`."""

    goes_to_zero: ClassVar[bool] = False
    """Whether the rate comes near zero, where a memory in units of parameters is of no use."""

    @abstractmethod
    def factor(self, epoch: float, n_epochs: float) -> float:
        """The factor after `epoch` of `n_epochs` passes over the data; both need not be whole."""
