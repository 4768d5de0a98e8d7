"""Exit codes, and the errors that lead to them."""

import functools
import os
import re
import sys
from collections.abc import Callable
from enum import IntEnum
from typing import ParamSpec, TypeVar

import typer
from rich.text import Text

from holdfast.errors import FetchError, MissingDataError, RankFailedError, RanksDifferError
from holdfast.lab.cli._console import error_console
from holdfast.lab.cli._launch import is_follower
from holdfast.lab.cli._spelling import SPELLING

P = ParamSpec("P")
T = TypeVar("T")


class ExitCode(IntEnum):
    """Exit codes; docs/cli.md explains them."""

    DONE = 0
    FAILED = 1
    WRONG_USE = 2
    DIVERGED = 3
    NO_DATA = 4
    INTERRUPTED = 130
    TERMINATED = 143


def reports_errors(command: Callable[P, T]) -> Callable[P, T]:
    """Report every expected error of a command as one sentence and an exit code."""

    @functools.wraps(command)
    def reporting(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except (FetchError, MissingDataError) as error:
            raise _exit(str(error), ExitCode.NO_DATA) from None
        except BrokenPipeError:  # the reader of the output has left, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(ExitCode.FAILED) from None
        except FileNotFoundError as error:
            raise _exit(_sentence(error), ExitCode.WRONG_USE) from None
        except OSError as error:
            raise _exit(_sentence(error), ExitCode.FAILED) from None
        except ValueError as error:
            raise _exit(_with_flags(str(error)), ExitCode.WRONG_USE) from None
        except (RankFailedError, RanksDifferError) as error:
            # Every rank says who is missing: rank 0 may be.
            raise _exit(str(error), ExitCode.FAILED, on_all_ranks=True) from None
        except (MemoryError, RuntimeError) as error:
            if not isinstance(error, MemoryError) and "memory" not in str(error):
                raise
            why = str(error).partition("\n")[0]
            message = f"Not enough memory ({why})." if why else "Not enough memory."
            raise _exit(message, ExitCode.FAILED) from None
        except KeyboardInterrupt:
            error_console().print("Stopped.", style="yellow")
            raise typer.Exit(ExitCode.INTERRUPTED) from None

    return reporting


def note(text: object) -> None:
    """Print a note on standard error."""
    error_console().print(f"Note: {text}", style="yellow", soft_wrap=True)


def _sentence(error: OSError) -> str:
    """Return the reason and the file of a system error."""
    if error.strerror is None:
        return _with_flags(str(error))
    return f"{error.strerror}: {error.filename}" if error.filename else error.strerror


def _with_flags(message: str) -> str:
    """Return the message with the name at its beginning replaced by the option's flag."""
    return re.sub(r"^`([^`]+)`", lambda found: f"`{SPELLING.get(found[1], found[1])}`", message)


def _exit(message: str, code: ExitCode, *, on_all_ranks: bool = False) -> typer.Exit:
    # Ranks that have the same error, or that of one of them, leave it to the first to say so.
    if on_all_ranks or not is_follower():
        error_console().print(Text.assemble(("Error:", "bold red"), " ", message), soft_wrap=True)
    return typer.Exit(code)
