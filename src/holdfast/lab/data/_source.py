"""A place that files of a data set can be had from, and the ways it can fail."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from holdfast.lab.data._description import DataFile
from holdfast.lab.data._progress import Progress

Report = Callable[[Progress], None]


class SourceError(Exception):
    """A source does not deliver, for the reason in the message; another may."""


class PassingError(SourceError):
    """It may deliver at the next attempt: a busy server, a cut connection."""


class UnreachableError(SourceError):
    """No connection was made: the source, or this machine, is offline."""


class NotInstalledError(SourceError):
    """A program that it needs is not on this machine."""


class WrongBytesError(SourceError):
    """It delivered something else."""


class Source(ABC):
    """A place that delivers files of a data set."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What people call it."""

    @abstractmethod
    def deliver(
        self, files: Sequence[DataFile], folder: Path, report: Report
    ) -> Iterator[DataFile]:
        """Puts the files into the folder, uncompressed, each only once its checksum is right; yields each that is there.

        Raises:
            SourceError: if it does not have them all, or not as they should be; those yielded before stay.
            FetchError: if the folder cannot hold them.
        """
