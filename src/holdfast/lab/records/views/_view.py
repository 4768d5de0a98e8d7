"""What every view is."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, kw_only=True)
class View:
    """Something to look at: a table, or a figure.

    Args:
        title: what it shows.
        note: what one must know to read it; may be empty.
    """

    kind: ClassVar[str]

    title: str
    note: str = ""
