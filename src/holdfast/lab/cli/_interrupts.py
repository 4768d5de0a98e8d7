"""Ctrl-C that leaves a run to be taken up again."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import final

import typer

from holdfast.lab.cli._console import error_console
from holdfast.lab.cli._exit_codes import ExitCode


@final
class Interrupts:
    """Remembers that a stop was asked for; the second time it stops at once."""

    def __init__(self) -> None:
        self.code: ExitCode | None = None

    def asked(self) -> bool:
        """Whether to stop after this step."""
        return self.code is not None

    def note(self, number: int, frame: FrameType | None) -> None:
        """The signal's handler."""
        if self.code is not None:
            raise KeyboardInterrupt
        self.code = ExitCode.TERMINATED if number == signal.SIGTERM else ExitCode.INTERRUPTED
        error_console().print(
            "\nStopping after this step; once more to stop at once.", style="yellow"
        )


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Let SIGINT and SIGTERM ask for a stop, within the block; if the second one ends it, the exit code is the first one's."""
    noted = Interrupts()
    before = {
        number: signal.signal(number, noted.note) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield noted
    except KeyboardInterrupt:
        error_console().print("Stopped.", style="yellow")
        raise typer.Exit(noted.code or ExitCode.INTERRUPTED) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
