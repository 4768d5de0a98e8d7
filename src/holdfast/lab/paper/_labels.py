"""Finding runs and measurements by their labels in a study."""

from collections.abc import Mapping

from holdfast.lab.records import Labels

Labeled = Mapping[str, Labels]
"""Labels of runs or measurements by their hashes."""


def cell(labeled: Labeled, **labels: str | float) -> tuple[str, ...]:
    """Return the hashes of all that have these labels."""
    return tuple(key for key, own in labeled.items() if labels.items() <= own.items())


def texts(labeled: Labeled, name: str) -> list[str]:
    """Return the distinct values of a label in the order in which they appear."""
    return list(dict.fromkeys(str(own[name]) for own in labeled.values()))


def numbers(labeled: Labeled, name: str) -> list[float]:
    """Return the distinct values of a numeric label in the order in which they appear."""
    return list(dict.fromkeys(float(own[name]) for own in labeled.values()))
