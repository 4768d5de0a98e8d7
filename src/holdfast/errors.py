"""Exceptions that a caller may want to catch; every other wrong argument is a plain `ValueError`."""


class NonFiniteRowsError(ValueError):
    """Most of the rows hold NaN or infinity, so no rule can tell a direction from them."""


class NoMajorityError(ValueError):
    """A group of redundant rows holds no row that more than half of the group agree on."""


class UnknownNameError(ValueError):
    """A name that no registry entry has; the message lists the names that exist."""


class NonFiniteMemoryError(ValueError):
    """What a step would carry over, or send in the rows' dtype, is not finite; the step was not made."""


class NewerRecordError(ValueError):
    """A record was written by a later release, in a form that this one does not know."""


class RunInUseError(OSError):
    """Another process is writing to the same run."""


class DivergedError(ValueError):
    """A training went to infinity."""


class MissingDataError(FileNotFoundError):
    """A data set is in none of the folders looked at; the message says which, and ends with the command that fetches it."""


class FetchError(OSError):
    """A data set could not be fetched or stored; the message says what was tried, why it failed and what to do by hand."""
