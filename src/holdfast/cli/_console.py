"""Where tables are printed."""

import sys

from rich.console import Console

WIDTH = 160
"""Of what is not a terminal, where nothing should be cut."""


def console() -> Console:
    """Standard output: a terminal with its width and colours, or a wide page without control characters."""
    return (
        Console(highlight=False)
        if sys.stdout.isatty()
        else Console(highlight=False, width=WIDTH, no_color=True, force_terminal=False)
    )


def is_live() -> bool:
    """Whether standard output can be drawn on."""
    return sys.stdout.isatty() and console().is_terminal and not console().is_dumb_terminal
