"""Where lines and tables are printed, with every text as it is: no markup, no emoji."""

import sys
from typing import Any

from rich.console import Console

WIDTH = 160
"""Of what is not a terminal, where nothing should be cut."""

AS_IT_IS: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False}


def console() -> Console:
    """Standard output: a terminal with its width and colours, or a wide page without control characters."""
    return (
        Console(**AS_IT_IS)
        if sys.stdout.isatty()
        else Console(**AS_IT_IS, width=WIDTH, no_color=True, force_terminal=False)
    )


def error_console() -> Console:
    """Standard error."""
    return Console(**AS_IT_IS, stderr=True)


def is_live() -> bool:
    """Whether standard output can be drawn on."""
    return sys.stdout.isatty() and console().is_terminal and not console().is_dumb_terminal
