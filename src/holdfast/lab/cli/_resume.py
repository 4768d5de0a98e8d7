"""`holdfast resume`."""

from pathlib import Path
from typing import Annotated

import typer

from holdfast.lab.cli import _options as options
from holdfast.lab.cli._execute import execute
from holdfast.lab.cli._exit_codes import reports_errors
from holdfast.lab.config import config_from_json
from holdfast.lab.records import read_record


@reports_errors
def resume(
    run: Annotated[Path, typer.Argument(help="The run's folder.", show_default=False)],
    data_dir: options.DataDir = None,
    offline: options.Offline = False,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            help="Where to compute, if not where it was begun.",
            rich_help_panel=options.RUN,
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            min=1,
            help="Threads of torch on the CPU, if not as begun.",
            rich_help_panel=options.RUN,
        ),
    ] = None,
    checkpoint_seconds: options.CheckpointSeconds = 30.0,
    tensorboard: options.WantsTensorBoard = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Go on with a run that was stopped, from its last checkpoint, as if nothing had happened.

    The record will be the same, times apart, as that of a run without a stop. Device and number of threads are those with which it was begun, because
    the last digits depend on them.
    """
    record = read_record(run)
    begun = record.run.get("machine", {})
    execute(
        config_from_json(record.config),
        run,
        data_dir=data_dir,
        offline=offline,
        device=device or begun.get("device", "cpu"),
        threads=threads or begun.get("threads"),
        checkpoint_seconds=checkpoint_seconds,
        tensorboard=tensorboard,
        quiet=quiet,
        json=json,
    )
