"""`holdfast data`."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from holdfast.lab.cli._console import console
from holdfast.lab.cli._runs import screen_for
from holdfast.lab.data import data_sets, fetch, locate


def list_data(data_dir: Path | None) -> None:
    """Print all data sets and their places."""
    table = Table("name", "data set", "images", "where", box=None, header_style="bold")
    table.padding = (0, 2, 0, 0)
    for name, described in data_sets.items():
        size = f"{described.n_train:,} + {described.n_test:,}"
        where = _where(name, data_dir)
        table.add_row(Text(name, style="cyan"), described.title, size, where)
    console().print(table)


def _where(name: str, data_dir: Path | None) -> str:
    if data_sets[name].is_bundled:
        return "part of holdfast"
    found = locate(name, data_dir=data_dir)
    if found is not None:
        return str(found)
    return f"missing ({data_sets[name].download_bytes / 1e6:.0f} MB): holdfast data fetch {name}"


def fetch_data(given: Mapping[str, Any]) -> None:
    """Fetch a data set and print its folder."""
    name, mirrors = given["name"], given["mirror"] or []
    with closing(screen_for(title=f"Fetching {name}", quiet=given["quiet"])) as screen:
        options = {"data_dir": given["data_dir"], "mirrors": mirrors, "force": given["force"]}
        folder = fetch(name, progress=screen.fetching, **options)
    typer.echo(f"{name} is in {folder}")
