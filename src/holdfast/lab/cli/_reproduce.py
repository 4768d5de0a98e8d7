"""`holdfast reproduce`."""

import shlex
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from holdfast.checks import failure
from holdfast.errors import MissingDataError
from holdfast.lab.cli import _options as options
from holdfast.lab.cli._console import console, error_console, is_live
from holdfast.lab.cli._execute import fetch_if_missing, parse_device
from holdfast.lab.cli._exit_codes import ExitCode, reports_errors
from holdfast.lab.cli._interrupts import interrupts
from holdfast.lab.cli.screens import SweepBoard, SweepLines, screen
from holdfast.lab.config import Config, hash_of
from holdfast.lab.data import locate
from holdfast.lab.paper import Recipe, recipes, study_of
from holdfast.lab.records import keep_study
from holdfast.lab.sweep import SweepObserver, SweepResult, ended_runs, n_cores, sweep
from holdfast.registry import unknown_name


class SizeName(StrEnum):
    """How much of an experiment."""

    SMOKE = "smoke"
    QUICK = "quick"
    FULL = "full"


class VariantName(StrEnum):
    """Which form of an experiment."""

    PAPER = "paper"
    PUBLISHED = "published"


def complete_recipes(incomplete: str) -> list[str]:
    """The recipes that begin so."""
    return [name for name in recipes if name.startswith(incomplete)]


@reports_errors
def reproduce(
    recipe: Annotated[
        str,
        typer.Argument(
            help="The table or figure; see `holdfast list recipes`.",
            autocompletion=complete_recipes,
        ),
    ],
    size: Annotated[
        SizeName,
        typer.Option(
            "--size", help="smoke: about a minute; quick: hours; full: what the paper did."
        ),
    ] = SizeName.QUICK,
    variant: Annotated[
        VariantName,
        typer.Option(
            "--variant", help="As the paper's text says, or as the runs published with it were."
        ),
    ] = VariantName.PAPER,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds", min=1, help="How many seeds, from 0 on.", show_default="of the recipe"
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            min=1,
            help="Runs side by side; they share the cores.",
            show_default="one a core",
        ),
    ] = None,
    known: Annotated[
        list[Path] | None,
        typer.Option(
            "--known",
            help="Folders with records, or compact files, whose ended runs are not made again; may be repeated.",
            exists=True,
            show_default=False,
        ),
    ] = None,
    folder: Annotated[
        Path, typer.Option("--folder", help="In which each run has a folder of its own.")
    ] = Path("runs"),
    data_dir: options.DataDir = None,
    offline: options.Offline = False,
    device: options.Device = "cpu",
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print failures and the last line alone.")
    ] = False,
) -> None:
    """Make all runs of one of the paper's tables or figures.

    Runs that are there already are not made again, and one that was stopped goes on: stop it with Ctrl-C whenever you like, and give the same command again.
    Then `holdfast report` shows what there is.
    """
    chosen = _recipe(recipe, variant)
    plan = chosen.plan(
        variant.value, size.value, range(chosen.n_seeds[size.value] if seeds is None else seeds)
    )
    if seeds is not None and not plan.configs:
        raise failure("--seeds", f"be left out for {recipe}, which trains nothing", seeds)
    where = parse_device(device)
    ended = _ended_runs(known or [], quiet=quiet)
    study = study_of(chosen, plan, variant.value, size.value, seeds)
    left = [config for config in plan.configs if hash_of(config) not in ended]
    _have_data(_without_data(left, folder, data_dir), data_dir, offline=offline, quiet=quiet)
    if jobs is not None and where.type == "cpu" and jobs > n_cores():
        error_console().print(
            f"Note: {jobs} runs side by side on {n_cores()} cores slow each other down.",
            style="yellow",
        )
    keep_study(folder, study)
    with ExitStack() as stack:
        asked = stack.enter_context(interrupts())
        observer: SweepObserver = SweepLines(quiet=quiet)
        if is_live() and not quiet:
            observer = stack.enter_context(
                SweepBoard(console(), f"{study.title} ({variant}, {size})")
            )
        result = sweep(
            plan,
            folder,
            observer,
            n_workers=jobs or (n_cores() if where.type == "cpu" else 1),
            known=ended,
            data_dir=data_dir,
            device=where,
            stop=asked.asked,
            command=study.command,
        )
    _tell(result, [folder, *(known or [])])
    if result.was_stopped:
        raise typer.Exit(asked.code or ExitCode.INTERRUPTED)
    if result.failures:
        raise typer.Exit(ExitCode.FAILED)


def _recipe(name: str, variant: VariantName) -> Recipe:
    if name not in recipes:
        raise unknown_name("recipe", recipes, name)
    if variant.value not in recipes[name].variants:
        raise failure(
            "--variant", f"be {' or '.join(recipes[name].variants)} for {name}", variant.value
        )
    return recipes[name]


def _ended_runs(known: list[Path], *, quiet: bool) -> frozenset[str]:
    """The hashes of the runs that these records hold and that need not be made again."""
    if not known:
        return frozenset()
    from holdfast.lab.report import collect  # not for every sweep: it takes a second

    found = collect(known)
    for problem in () if quiet else found.problems:
        error_console().print(f"Note: {problem}", style="yellow", soft_wrap=True)
    return frozenset(key for key, run in found.runs.items() if run.has_ended)


def _without_data(configs: list[Config], folder: Path, data_dir: Path | None) -> list[Config]:
    """Those of the runs whose data are not on this machine, and that did not end in the folder either."""
    lacking = {
        name
        for name in {config.data for config in configs}
        if locate(name, data_dir=data_dir) is None
    }
    ended = ended_runs(folder) if lacking else frozenset()  # reading all records takes a while
    return [config for config in configs if config.data in lacking and hash_of(config) not in ended]


def _have_data(configs: list[Config], data_dir: Path | None, *, offline: bool, quiet: bool) -> None:
    """Fetch the data sets of these runs, which are not on this machine, or refuse to begin without them."""
    with screen(quiet=quiet, json=False) as shown:
        for config in {config.data: config for config in configs}.values():
            if not offline:
                fetch_if_missing(config, data_dir, shown)
            else:
                raise MissingDataError(
                    f"{config.data} is not on this machine, and must be for --offline; get it by: holdfast data fetch {config.data}"
                )


def _tell(result: SweepResult, places: list[Path]) -> None:
    """What came of it, and what to do next."""
    for sentence in result.failures:
        error_console().print(f"Failed: {sentence}", style="red", soft_wrap=True)
    words = (
        [f"{result.n_measured} of {result.n_measurements} measurements are there"]
        if result.n_measurements
        else []
    )
    words += [f"{result.n_ended} of {result.n_runs} runs have ended"] if result.n_runs else []
    words += [f"{len(result.failures)} failed"] if result.failures else []
    ended = ", ".join(words)
    if result.was_stopped:
        typer.echo(f"{ended}. Stopped; the same command goes on from here.", err=True)
    else:
        typer.echo(f"{ended}. To see them: holdfast report {shlex.join(map(str, places))}")
