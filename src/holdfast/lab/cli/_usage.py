"""Commands that report a wrong use in one sentence, in the form of the library's own errors."""

import re
import sys
from typing import Any, final

import click
from rich.text import Text
from typer.core import TyperArgument, TyperGroup

from holdfast.lab.cli._console import error_console
from holdfast.lab.cli._options import OPTIONS
from holdfast.registry import suggestion

NOUNS = {"integer": "a whole number", "float": "a number"}
"""Types of values by the beginning of their names in click."""


@final
class Commands(TyperGroup):
    """The commands of `holdfast`."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        # Arguments of click have a help of their own since 8.5, which replaces that of typer 0.20.
        for parameter in (one for command in self.commands.values() for one in command.params):
            name = (parameter.name or "").upper()
            if isinstance(parameter, TyperArgument) and parameter.help is None and name in OPTIONS:
                parameter.help = OPTIONS[name].help

    def main(self, *args: Any, **more: Any) -> Any:
        """Run a command and end the process; with `standalone_mode=False`, return instead."""
        if not more.get("standalone_mode", True):
            return super().main(*args, **more)
        more["standalone_mode"] = False
        try:
            code = super().main(*args, **more)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(error.exit_code)
        except click.UsageError as error:
            text = Text.assemble(("Error:", "bold red"), " ", wrong_use(error))
            error_console().print(text, soft_wrap=True)
            sys.exit(error.exit_code)
        sys.exit(code or 0)


def wrong_use(error: click.UsageError) -> str:
    """Return the sentence for an error of click: name, requirement, what came, what to do.

    Example:
        >>> wrong_use(click.NoSuchOption("--stepz"))
        "`holdfast` must be given its own options, got '--stepz'; see holdfast -h."
    """
    path = error.ctx.command_path if error.ctx is not None else "holdfast"
    command = error.ctx.command if error.ctx is not None else None
    see = f"; see {path} -h."
    if isinstance(error, click.NoSuchOption):
        parameters = [] if command is None else command.params
        known = [flag for one in parameters for flag in one.opts if flag.startswith("--")]
        got = f"{error.option_name!r}{suggestion(error.option_name, known)}"
        return f"`{path}` must be given its own options, got {got}{see}"
    if isinstance(error, click.MissingParameter) and error.param is not None:
        return f"`{path}` must be given {error.param.human_readable_name}{see}"
    if isinstance(error, click.BadParameter) and error.param is not None:
        return _wrong_value(error, error.param)
    if isinstance(error, click.BadOptionUsage):
        needs = "stand alone" if "not take a value" in error.message else "be followed by a value"
        return f"`{error.option_name}` must {needs}{see}"
    # Click has no class of its own for these in all of its versions.
    unknown = re.match("No such command '(.*?)'", error.message, re.DOTALL)
    if unknown and isinstance(command, click.Group):
        listed, got = ", ".join(command.commands), unknown[1]
        hint = suggestion(got, command.commands)
        return f"`{path}` must be followed by one of {listed}, got {got!r}{hint}."
    stray = re.search(r"unexpected extra arguments? \((.*)\)", error.message, re.DOTALL)
    return (
        f"`{path}` must be given no more arguments, got {stray[1]}{see}" if stray else error.message
    )


def _wrong_value(error: click.BadParameter, parameter: click.Parameter) -> str:
    """Return the sentence for a value of a wrong type, outside a range or not among the choices."""
    flags, kind = parameter.opts, parameter.type
    name = flags[0] if flags[0].startswith("-") else parameter.name
    quoted = re.match(r"(?:Path )?'(.*?)' ", error.message, re.DOTALL)
    got = quoted[1] if quoted else error.message.partition(" ")[0]
    if isinstance(kind, click.Choice):
        choices = [str(getattr(one, "value", one)) for one in kind.choices]
        requirement = f"be one of {', '.join(choices)}"
        return f"`{name}` must {requirement}, got {got!r}{suggestion(got, choices)}."
    bounds = re.search(r"is not in the range (?:(\S+)<=)?x(?:>=(\S+)|<=(\S+))\.", error.message)
    if bounds:
        low, high = bounds[1] or bounds[2], bounds[3]
        words = [f"at least {float(low):g}"] if low else []
        words += [f"at most {float(high):g}"] if high else []
        return f"`{name}` must be {' and '.join(words)}, got {got}."
    noun = next((noun for start, noun in NOUNS.items() if kind.name.startswith(start)), None)
    if noun is not None:
        return f"`{name}` must be {noun}, got {got!r}."
    return f"`{name}` must exist, got {got!r}."
