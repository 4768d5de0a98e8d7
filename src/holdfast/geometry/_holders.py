"""The processes that hold the columns of the rows: one for all, or several with some each."""

from typing import Protocol, final

from torch import Tensor


class Holders(Protocol):
    """The interface through which columns of several processes are summed.

    A rule must decide only by results of these methods, so that all holders of columns decide
    alike. Every holder makes the same calls in the same order.
    """

    def sum(self, partial: Tensor) -> Tensor:
        """The sum of the holders' tensors, of one shape."""
        ...

    def max(self, partial: Tensor) -> Tensor:
        """The elementwise maximum of the holders' tensors; NaN if one of them is NaN."""
        ...

    def all(self, flag: bool) -> bool:
        """Whether the flag is true for every holder."""
        ...


@final
class Alone:
    """One holder of all columns."""

    def sum(self, partial: Tensor) -> Tensor:
        return partial

    def max(self, partial: Tensor) -> Tensor:
        return partial

    def all(self, flag: bool) -> bool:
        return flag


ALONE = Alone()
"""The holders of rows that are whole in one process."""
