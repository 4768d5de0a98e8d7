"""What the user sees of a run: live in a terminal, line by line elsewhere, little or JSON if asked."""

from holdfast.checks import failure
from holdfast.lab.cli._console import console, is_live
from holdfast.lab.cli.screens._board_screen import BoardScreen
from holdfast.lab.cli.screens._json_screen import JsonScreen
from holdfast.lab.cli.screens._live_screen import LiveScreen
from holdfast.lab.cli.screens._plain_screen import PlainScreen
from holdfast.lab.cli.screens._quiet_screen import QuietScreen
from holdfast.lab.cli.screens._screen import Screen
from holdfast.lab.cli.screens._sweep_board import SweepBoard
from holdfast.lab.cli.screens._sweep_lines import SweepLines

__all__ = [
    "BoardScreen",
    "JsonScreen",
    "LiveScreen",
    "PlainScreen",
    "QuietScreen",
    "Screen",
    "SweepBoard",
    "SweepLines",
    "screen",
]


def screen(*, quiet: bool, json: bool) -> Screen:
    """The screen that fits the options and where the output goes."""
    if quiet and json:
        raise failure("--quiet", "be given without --json", "both")
    if quiet:
        return QuietScreen()
    if json:
        return JsonScreen()
    return LiveScreen(console()) if is_live() else PlainScreen()
