"""The processes of one run: one, or the ranks of a process group."""

from collections.abc import Callable
from typing import Protocol, TypeVar, final

T = TypeVar("T")


class Crew(Protocol):
    """What a run asks of its processes; `holdfast.distributed.Ranks` answers for many."""

    def together(self, work: Callable[[], T], /) -> T:
        """Do the work of this process; if it fails in one process, all raise the error."""

    def any(self, flag: bool, /) -> bool:
        """Whether the flag is set in some process."""


@final
class Alone:
    """A single process."""

    def together(self, work: Callable[[], T]) -> T:
        """Do the work."""
        return work()

    def any(self, flag: bool) -> bool:
        """The flag."""
        return flag
