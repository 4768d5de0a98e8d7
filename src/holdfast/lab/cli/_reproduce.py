"""`holdfast reproduce`."""

import shlex
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import typer

from holdfast.checks import failure
from holdfast.lab.cli._console import error_console
from holdfast.lab.cli._errors import ExitCode, note
from holdfast.lab.cli._runs import (
    check_folder,
    fetch_missing,
    interrupts,
    parse_device,
    screen_for,
    sweep_runs,
)
from holdfast.lab.config import hash_of
from holdfast.lab.paper import Recipe, recipes, study_of, take_measurements
from holdfast.lab.records import keep_study
from holdfast.lab.sweep import SweepResult, n_cores, plan_runs
from holdfast.registry import unknown_name


def reproduce(given: Mapping[str, Any]) -> None:
    """Take all measurements and train all runs of a recipe."""
    variant, size, seeds = given["variant"].value, given["size"].value, given["seeds"]
    folder, jobs, known = given["runs"], given["jobs"], given["known"] or []
    check_folder(folder)
    recipe = _recipe(given["recipe"], variant)
    plan = recipe.plan(variant, size, range(recipe.n_seeds[size] if seeds is None else seeds))
    if seeds is not None and not plan.configs:
        raise failure("--seeds", f"be left out for {given['recipe']}, which trains nothing", seeds)
    on_cpu = parse_device(given["device"]).type == "cpu"
    if jobs is not None and on_cpu and jobs > n_cores():
        note(f"{jobs} parallel runs on {n_cores()} cores slow each other down.")
    ended = _ended_runs(known, quiet=given["quiet"])
    study = study_of(recipe, plan, variant, size, seeds)
    runs = plan_runs(plan.configs, folder, known=ended)
    title = f"{study.title} ({variant}, {size})"
    with closing(screen_for(title=title, quiet=given["quiet"])) as screen:
        fetch_missing([run for run in runs if hash_of(run.config) not in ended], screen, given)
        keep_study(folder, study)
        with interrupts() as received:
            measured = take_measurements(
                plan.measurements,
                folder,
                measured=lambda one, is_new: screen.measured(one.name, is_new=is_new),
                stop=lambda: bool(received),
                command=study.command,
            )
            n_workers = jobs or (n_cores() if on_cpu else 1)
            options = {"n_workers": n_workers, "known": ended, "command": study.command}
            trained = sweep_runs(runs, screen, received, given, **options)
    _print_result(measured, trained, [folder, *known])
    if measured.was_stopped or trained.was_stopped:
        raise typer.Exit(received[0])
    if measured.failures or trained.failures:
        raise typer.Exit(ExitCode.FAILED)


def _recipe(name: str, variant: str) -> Recipe:
    if name not in recipes:
        raise unknown_name("recipe", recipes, name)
    variants = recipes[name].variants
    if variant not in variants:
        raise failure("--variant", f"be {' or '.join(variants)} for {name}", variant)
    return recipes[name]


def _ended_runs(known: list[Path], *, quiet: bool) -> frozenset[str]:
    """Return the hashes of the runs in these places that have ended."""
    if not known:
        return frozenset()
    from holdfast.lab.report import collect  # loads matplotlib, which takes a second

    found = collect(known)
    for problem in () if quiet else found.problems:
        note(problem)
    return frozenset(key for key, run in found.runs.items() if run.has_ended)


def _print_result(measured: SweepResult, trained: SweepResult, places: list[Path]) -> None:
    failures = measured.failures + trained.failures
    for sentence in failures:
        error_console().print(f"Failed: {sentence}", style="red", soft_wrap=True)
    counts = ((measured, "measurements exist"), (trained, "runs have ended"))
    words = [f"{one.n_ended} of {one.n_runs} {text}" for one, text in counts if one.n_runs]
    words += [f"{len(failures)} failed"] if failures else []
    if measured.was_stopped or trained.was_stopped:
        typer.echo(f"{', '.join(words)}. Stopped; the same command continues.", err=True)
    else:
        report = f"holdfast report {shlex.join(map(str, places))}"
        typer.echo(f"{', '.join(words)}. For a report: {report}")
