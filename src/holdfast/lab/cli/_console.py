"""Consoles that print every text as it is: no markup, no emoji."""

import sys
from typing import Any

from rich.console import Console

WIDTH = 160
"""Columns of an output that is not a terminal, where nothing should be cut."""

AS_IT_IS: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False}


def console() -> Console:
    """Return the console of standard output; control characters go to terminals only."""
    if sys.stdout.isatty():
        return Console(**AS_IT_IS)
    return Console(**AS_IT_IS, width=WIDTH, no_color=True, force_terminal=False)


def error_console() -> Console:
    """Return the console of standard error."""
    return Console(**AS_IT_IS, stderr=True)


def is_live() -> bool:
    """Return whether standard output can be drawn on."""
    return sys.stdout.isatty() and console().is_terminal and not console().is_dumb_terminal
