"""An option or an argument of the command line."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, final

import typer

from holdfast.lab.cli._list import Kind, names_of


@final
class Option:
    """An option or an argument of the command line.

    Args:
        value: type of its value.
        text: help.
        default: where a command sets no other; `...` if it must be given.
        field: field of `Config` that it sets, alone or with others.
        kind: names that it accepts, which the shell completes.
        flags: how it is typed, if not like its name.
        more: further arguments of `typer.Option`.
    """

    def __init__(
        self,
        value: Any,
        text: str,
        default: object = None,
        field: str | None = None,
        *,
        kind: Kind | None = None,
        flags: tuple[str, ...] = (),
        **more: Any,
    ) -> None:
        self._value = value
        self.default = inspect.Parameter.empty if default is ... else default
        self.field = field
        self.help = text
        self._flags = flags
        self._more = {"help": text, **more}
        if kind is not None:
            self._more["autocompletion"] = _completion(kind)

    def parameter(
        self, name: str, default: object, panel: str | None, **changes: Any
    ) -> inspect.Parameter:
        """Return the parameter from which typer makes the option; capitals name an argument.

        Args:
            name: of the argument that the command receives.
            default: where the option is not given.
            panel: of the help.
            changes: arguments of `typer.Option` that differ from those of the table.
        """
        if name.isupper():
            info = typer.Argument(**{**self._more, **changes})
        else:
            flags = self._flags or (flag_of(name),)
            info = typer.Option(*flags, rich_help_panel=panel, **{**self._more, **changes})
        place, annotation = inspect.Parameter.KEYWORD_ONLY, Annotated[self._value, info]
        return inspect.Parameter(name.lower(), place, default=default, annotation=annotation)


def flag_of(name: str) -> str:
    """Return how an option is typed: `"--data-dir"` for `"data_dir"`."""
    return f"--{name.replace('_', '-')}"


def _completion(kind: Kind) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [name for name in names_of(kind) if name.startswith(incomplete)]

    return complete
