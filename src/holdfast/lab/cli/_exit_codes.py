"""How a command ends, for shells and scripts."""

import functools
import os
import re
import sys
from collections.abc import Callable
from enum import IntEnum
from typing import ParamSpec, TypeVar

import typer
from rich.text import Text

from holdfast.errors import FetchError, MissingDataError
from holdfast.lab.cli._console import error_console

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


OPTIONS = {
    "bad_fraction": "--corrupt",
    "adversaries": "--corrupt",
    "compact": "--compact",
    "n_shards": "--partition",
    "target": "--attack",
    "n_classes": "--attack",
    "lr": "--lr",
    "n_rows": "--rows",
    "n_rows * row_size": "--rows times --batch",
    "n_steps": "--steps",
    "n_trusted": "--trusted",
    "partition": "--partition",
    "row_size": "--batch",
    "rule": "--rule",
    "weight_decay": "--weight-decay",
    "whole_rows": "--whole-rows",
    "worker_momentum": "--worker-momentum",
}
"""How the command line spells what the library's messages name."""


def reports_errors(command: Callable[P, T]) -> Callable[P, T]:
    """The command with every expected failure turned into one sentence and an exit code."""

    @functools.wraps(command)
    def spoken(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except (FetchError, MissingDataError) as error:
            raise _failed(str(error), ExitCode.NO_DATA) from None
        except BrokenPipeError:  # whoever read the output has gone, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(ExitCode.FAILED) from None
        except FileNotFoundError as error:
            raise _failed(_sentence(error), ExitCode.WRONG_USE) from None
        except OSError as error:
            raise _failed(_sentence(error), ExitCode.FAILED) from None
        except ValueError as error:
            raise _failed(_in_options(str(error)), ExitCode.WRONG_USE) from None
        except (MemoryError, RuntimeError) as error:
            if not isinstance(error, MemoryError) and "memory" not in str(error):
                raise
            why = str(error).partition("\n")[0]
            raise _failed(
                f"Not enough memory ({why})." if why else "Not enough memory.", ExitCode.FAILED
            ) from None
        except KeyboardInterrupt:
            error_console().print("Stopped.", style="yellow")
            raise typer.Exit(ExitCode.INTERRUPTED) from None

    return spoken


def _sentence(error: OSError) -> str:
    """What the system refused, with the file it is about."""
    if error.strerror is None:
        return str(error)
    return f"{error.strerror}: {error.filename}" if error.filename else error.strerror


def _in_options(message: str) -> str:
    """The message with the fields at its beginning spelled as options."""
    return re.sub(r"^`([^`]+)`", lambda found: f"`{OPTIONS.get(found[1], found[1])}`", message)


def _failed(message: str, code: ExitCode) -> typer.Exit:
    error_console().print(Text.assemble(("Error:", "bold red"), " ", message), soft_wrap=True)
    return typer.Exit(code)
