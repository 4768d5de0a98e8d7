"""Exceptions that a caller may want to catch; every other wrong argument is a plain `ValueError`."""


class NonFiniteRowsError(ValueError):
    """Most of the rows hold NaN or infinity, so no rule can tell a direction from them."""


class NoMajorityError(ValueError):
    """A group of redundant rows holds no row that more than half of the group agree on."""


class UnknownNameError(ValueError):
    """A name that no registry entry has; the message lists the names that exist."""


class NonFiniteMemoryError(ValueError):
    """What a step would carry over, or send in the rows' dtype, is not finite; the step was not made."""
