"""`holdfast list`, and a cache of names so that listing and completing them does not load torch."""

import contextlib
import json
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Any

import typer

from holdfast import __version__

Entry = tuple[str, str, str]
"""Name, arguments and description."""


Kind = StrEnum(
    "Kind",
    "RULES ATTACKS DATA MODELS SCHEMES SELECTORS MEMORIES PARTITIONS OPTIMIZERS SCHEDULES RECIPES",
)
"""Kinds of names that options accept."""


def list_names(kind: Kind | None, *, as_json: bool) -> None:
    """Print the names of one kind, or of all."""
    from rich.table import Table

    from holdfast.lab.cli._console import console

    found = {one.value: entries for one, entries in listings().items() if kind in (None, one)}
    if as_json:
        keys = ("name", "arguments", "what")
        content = {
            name: [dict(zip(keys, entry, strict=True)) for entry in entries]
            for name, entries in found.items()
        }
        typer.echo(json.dumps(content, indent=2))
        return
    for name, entries in found.items():
        table = Table(title=name, title_justify="left", title_style="bold", box=None)
        table.padding = (0, 2, 0, 0)
        table.show_header = False
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(style="dim")
        table.add_column()
        for entry in entries:
            table.add_row(*entry)
        console().print(table, "")


def names_of(kind: Kind) -> list[str]:
    """Return the names of a kind."""
    return [name for name, _, _ in listings()[kind]]


def listings() -> dict[Kind, list[Entry]]:
    """Return all names from the cache; if it is missing, old or damaged, load and write them."""
    path, state = _cache_file(), _source_state()
    try:
        return _parse(json.loads(path.read_bytes()), state)
    except (OSError, ValueError, LookupError, TypeError):
        from holdfast.lab.cli._names import collect_names

        content = {"source": state, "names": collect_names()}
        _write(path, content)
        return _parse(content, state)


def _parse(content: Any, state: str) -> dict[Kind, list[Entry]]:
    if content["source"] != state:
        raise ValueError("The cache belongs to another version.")
    return {
        kind: [(str(name), str(arguments), str(what)) for name, arguments, what in entries]
        for kind, entries in ((kind, content["names"][kind]) for kind in Kind)
    }


def _source_state() -> str:
    """Return a text that changes with the version and with every edit of the source."""
    files = list(Path(__file__).parents[2].rglob("*.py"))
    return f"{__version__} {len(files)} {max(path.stat().st_mtime_ns for path in files)}"


def _cache_file() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("holdfast")) / "names.json"


def _write(path: Path, content: object) -> None:
    """Replace the cache atomically. Without it commands are slower, so a failure is no error."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            json.dump(content, file)
        Path(file.name).replace(path)
