"""Exceptions that a caller may want to catch; all other wrong arguments raise `ValueError`."""

from typing import Final

DISTRIBUTION: Final = "holdfast-train"
"""The name for pip, which messages about missing extras give; the same as in pyproject.toml."""


class NonFiniteRowsError(ValueError):
    """Most of the rows hold NaN or infinity, so no rule can find a direction."""


class NoMajorityError(ValueError):
    """A group of redundant rows holds no row that more than half of the group agree on."""


class UnknownNameError(ValueError):
    """A name is not in the registry; the message lists the names that are."""


class NonFiniteMemoryError(ValueError):
    """A step would keep or send values that are not finite; the step was not made."""


class NewerRecordError(ValueError):
    """A record was written by a later release, in a form that this release cannot read."""


class RunInUseError(OSError):
    """Another process is writing to the same run."""


class DivergedError(ValueError):
    """A training diverged to infinity."""


class MissingDataError(FileNotFoundError):
    """A data set was not found; the message lists the folders and the command that fetches it."""


class FetchError(OSError):
    """A data set could not be fetched or stored; the message says why, and what to do by hand."""


class RankFailedError(RuntimeError):
    """A rank did not take part in a step; the message names it."""


class RanksDifferError(RuntimeError):
    """The ranks of a process group differ in what they must have in common."""
