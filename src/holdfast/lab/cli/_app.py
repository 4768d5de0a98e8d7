"""The commands under one name."""

from typing import Annotated

import typer

from holdfast.lab.cli._attack import attack
from holdfast.lab.cli._data import data_app
from holdfast.lab.cli._list import list_names
from holdfast.lab.cli._report import report
from holdfast.lab.cli._reproduce import reproduce
from holdfast.lab.cli._resume import resume
from holdfast.lab.cli._train import train
from holdfast.lab.records import versions

app = typer.Typer(
    name="holdfast",
    help="Train models through corrupted gradients: rules, attacks, experiments, records.",
    epilog="Exit codes: 0 done, 1 a file or the disk refused, 2 wrong use, 3 diverged, 4 no data, 130 or 143 stopped by Ctrl-C or SIGTERM.",
    no_args_is_help=True,
    suggest_commands=False,  # click suggests already
    pretty_exceptions_enable=False,  # an unexpected failure shows the ordinary traceback, which people can search for
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo("holdfast {holdfast}, torch {torch}, Python {python}".format(**versions()))
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show versions and exit."),
    ] = False,
) -> None:
    pass


app.command("train")(train)
app.command("resume")(resume)
app.command("attack")(attack)
app.command("reproduce")(reproduce)
app.command("report")(report)
app.add_typer(data_app, name="data")
app.command("list")(list_names)
