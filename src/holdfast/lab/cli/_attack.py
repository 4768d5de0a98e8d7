"""`holdfast attack`."""

import json as json_format
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from holdfast.checks import failure
from holdfast.lab.cli import _options as options
from holdfast.lab.cli._build import check_data_name, config_of, n_steps_of, optimizer_of, threat_of
from holdfast.lab.cli._comparison import Comparison
from holdfast.lab.cli._console import console, is_live
from holdfast.lab.cli._execute import fetch_if_missing, show_run, use_threads
from holdfast.lab.cli._exit_codes import ExitCode, reports_errors
from holdfast.lab.cli._interrupts import interrupts
from holdfast.lab.cli._summary import resume_command
from holdfast.lab.cli.screens import BoardScreen, QuietScreen, Screen
from holdfast.lab.config import Config, Threat, run_name
from holdfast.lab.data import data_sets

RULES = ["mean", "coordinate-median", "geometric-median", "bgmd"]
DEFAULT_STEPS = 60


@reports_errors
def attack(
    attack: Annotated[
        str,
        typer.Argument(
            help="The attack or corruption; see `holdfast list attacks`.",
            autocompletion=options.complete_threats,
        ),
    ] = "scaled-flip",
    corrupt: Annotated[
        float, typer.Option("--corrupt", min=0.0, max=1.0, help="The share that is bad.")
    ] = 0.4,
    rule: Annotated[
        list[str] | None,
        typer.Option(
            "--rule",
            help="A rule or preset to compare; may be repeated.",
            show_default=", ".join(RULES),
            autocompletion=options.complete_rules,
        ),
    ] = None,
    trusted: options.Trusted = 0,
    fixed: options.Fixed = False,
    whole_rows: options.WholeRows = False,
    data: options.Data = "fashion-mnist-slice",
    model: options.Model = "lenet",
    rows: options.NRows = 10,
    batch: options.RowSize = 32,
    partition: options.PartitionText = "shuffled",
    steps: options.NSteps = None,
    epochs: options.NEpochs = None,
    optimizer: options.OptimizerText = "sgd(lr=0.05, momentum=0.9)",
    lr: options.Lr = None,
    weight_decay: options.WeightDecay = None,
    schedule: options.ScheduleText = "constant",
    seed: options.Seed = 0,
    folder: Annotated[
        Path, typer.Option("--folder", help="In which each run has a folder of its own.")
    ] = Path("runs"),
    data_dir: options.DataDir = None,
    offline: options.Offline = False,
    device: options.Device = "cpu",
    threads: options.Threads = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the table alone.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Train with several rules, each without and with the attack, and compare them in a table.

    Runs that are there already are not made again, and one that was stopped goes on.
    """
    check_data_name(data)
    if quiet and json:
        raise failure("--quiet", "be given without --json", "both")
    rules = list(dict.fromkeys(rule or RULES))
    n_steps = n_steps_of(
        steps,
        epochs,
        n_samples=data_sets[data].n_train - trusted,
        batch_size=rows * batch,
        default=DEFAULT_STEPS,
    )
    threat = threat_of(attack, corrupt, fixed=fixed, whole_rows=whole_rows)

    def config(name: str, *, is_attacked: bool) -> Config:
        return config_of(
            data=data,
            model=model,
            rule=name,
            threat=threat if is_attacked else Threat(),
            n_trusted=trusted,
            n_rows=rows,
            row_size=batch,
            partition=partition,
            n_steps=n_steps,
            evaluate_every=n_steps,
            optimizer=optimizer_of(optimizer, lr, weight_decay),
            schedule=schedule,
            seed=seed,
        )

    configs = {
        (name, is_attacked): config(name, is_attacked=is_attacked)
        for name in rules
        for is_attacked in (False, True)
    }
    comparison = Comparison(_title(configs[rules[0], True]), rules, attack)
    use_threads(threads)
    shows_progress = not quiet and not json
    shown: Screen = QuietScreen()
    if shows_progress and is_live():
        shown = BoardScreen(console(), comparison, n_steps * len(configs))
    with ExitStack() as stack:
        stack.enter_context(shown)
        if not offline:
            fetch_if_missing(configs[rules[0], False], data_dir, shown)
        asked = stack.enter_context(interrupts())
        for key, one in configs.items():
            try:
                record = show_run(
                    one,
                    folder / run_name(one),
                    shown,
                    asked,
                    data_dir=data_dir,
                    device=device,
                    checkpoint_seconds=30.0,
                )
            except KeyboardInterrupt:
                shown.close()
                raise
            comparison.records[key] = record
            if shows_progress:
                shown.end(record, resume_command(record.folder, data_dir=data_dir))
            if record.end is None:
                break
    if json:
        typer.echo(json_format.dumps(comparison.to_json(), indent=2))
    else:
        console().print(comparison.show())
        if not quiet:
            typer.echo(f"The records are in {folder}.")
    if any(record.end is None for record in comparison.records.values()):
        typer.echo("Stopped; the same command goes on from here.", err=True)
        raise typer.Exit(asked.code or ExitCode.INTERRUPTED)


def _title(config: Config) -> str:
    if config.threat.hits_rows:
        whole, what = config.n_rows, "rows"
    else:
        whole, what = config.batch_size, "samples"
    n_bad = config.threat.adversaries.count(whole)
    return f"{config.model} on {config.data}, {config.n_steps} steps of {config.n_rows} rows; under attack {n_bad} of {whole} {what} are bad"
