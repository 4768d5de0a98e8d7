"""How a command ends, for shells and scripts."""

import functools
import os
import sys
from collections.abc import Callable
from enum import IntEnum
from typing import ParamSpec, TypeVar

import typer
from rich.console import Console

from holdfast.errors import FetchError, MissingDataError

P = ParamSpec("P")
T = TypeVar("T")


class ExitCode(IntEnum):
    """The numbers; docs/cli.md explains them."""

    DONE = 0
    FAILED = 1
    WRONG_USE = 2
    DIVERGED = 3
    NO_DATA = 4
    INTERRUPTED = 130
    TERMINATED = 143


def speaks_plainly(command: Callable[P, T]) -> Callable[P, T]:
    """The command with every expected failure turned into one sentence and an exit code."""

    @functools.wraps(command)
    def spoken(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except (FetchError, MissingDataError) as error:
            raise _ended(str(error), ExitCode.NO_DATA) from None
        except BrokenPipeError:  # whoever read the output has gone, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(ExitCode.FAILED) from None
        except FileNotFoundError as error:
            raise _ended(_sentence(error), ExitCode.WRONG_USE) from None
        except OSError as error:
            raise _ended(_sentence(error), ExitCode.FAILED) from None
        except ValueError as error:
            raise _ended(str(error), ExitCode.WRONG_USE) from None
        except KeyboardInterrupt:
            raise _ended("Stopped.", ExitCode.INTERRUPTED) from None

    return spoken


def _sentence(error: OSError) -> str:
    """What the system refused, with the file it is about."""
    if error.strerror is None:
        return str(error)
    return f"{error.strerror}: {error.filename}" if error.filename else error.strerror


def _ended(message: str, code: ExitCode) -> typer.Exit:
    Console(stderr=True, highlight=False).print(f"[bold red]Error:[/] {_escaped(message)}", soft_wrap=True)
    return typer.Exit(code)


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")
