"""The options and arguments of all commands, in one table."""

import inspect
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from holdfast.lab.cli._defaults import (
    ATTACKS,
    DEFAULT_OPTIMIZER,
    DEFAULT_ROWS,
    DEFAULT_RULE,
    METHODS,
    RULES,
    WORKERS_OPTIMIZER,
)
from holdfast.lab.cli._list import Kind
from holdfast.lab.cli._option import Option

F = TypeVar("F", bound=Callable[..., object])

Size = StrEnum("Size", "SMOKE QUICK FULL")
Variant = StrEnum("Variant", "PAPER PUBLISHED")
FigureFormat = StrEnum("FigureFormat", "SVG PNG PDF")


def with_options(
    *names: str, changes: Mapping[str, Mapping[str, Any]] | None = None, **defaults: object
) -> Callable[[F], F]:
    """Give a command options of the table, which it receives as keyword arguments.

    Args:
        names: of the options, in the order of the help.
        changes: arguments of `typer.Option` that differ from those of the table, by option.
        defaults: that differ from those of the table.
    """
    changed = changes or {}

    def add(command: F) -> F:
        parameters = [
            OPTIONS[name].parameter(
                name,
                defaults.get(name, OPTIONS[name].default),
                PANELS[name],
                **changed.get(name, {}),
            )
            for name in names
        ]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        # The help breaks lines where the docstring does, unless its paragraphs are single lines.
        paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
        command.__doc__ = "\n\n".join(" ".join(text.split()) for text in paragraphs)
        return command

    return add


TABLE: dict[str | None, dict[str, Option]] = {
    None: {
        "RUN": Option(Path, "Folder of the run.", ..., show_default=False),
        "RECIPE": Option(
            str, "Table or figure; see `holdfast list recipes`.", ..., kind=Kind.RECIPES
        ),
        "NAME": Option(str, "Data set; see `holdfast data list`.", ..., kind=Kind.DATA),
        "ATTACKS": Option(
            list[str] | None,
            f"See `holdfast list attacks`; by default {', '.join(ATTACKS)}.",
            kind=Kind.ATTACKS,
            show_default=False,
        ),
        "KIND": Option(Kind | None, "Kind of names; by default all.", show_default=False),
        "RUNS": Option(
            list[Path] | None, "Folders or compact files; by default `runs`.", show_default=False
        ),
        "data": Option(
            str,
            "See `holdfast list data`, or a folder of yours with x_train.npy, y_train.npy, "
            "x_test.npy and y_test.npy.",
            "fashion-mnist-slice",
            "data",
            kind=Kind.DATA,
        ),
        "model": Option(
            str,
            "See `holdfast list models`, or a function of yours, package.module:function.",
            "lenet",
            "model",
            kind=Kind.MODELS,
        ),
        "size": Option(Size, "smoke: a minute; quick: hours; full: as in the paper.", Size.QUICK),
        "variant": Option(
            Variant, "As the paper's text says, or as its published runs were.", Variant.PAPER
        ),
        "seeds": Option(int | None, "How many, from 0.", min=1, show_default="of the recipe"),
        "jobs": Option(
            int | None, "Parallel runs; by default one per core.", min=1, flags=("--jobs", "-j")
        ),
        "known": Option(
            list[Path] | None, "Places of other ended runs; may be repeated.", exists=True
        ),
        "output": Option(Path, "Folder for the page.", Path("report"), flags=("--output", "-o")),
        "formats": Option(
            list[FigureFormat] | None, "Of figures, repeated; by default all.", flags=("--format",)
        ),
        "title": Option(str | None, "Title of the page.", show_default="names of the places"),
        "notes": Option(Path | None, "Folder of notes; NAME.md is shown with the study NAME."),
        "compact": Option(Path | None, "Also write all of its input to this file (JSON lines)."),
        "mirror": Option(list[str] | None, "Web folder to try first; may be repeated."),
        "force": Option(bool, "Fetch even if a valid copy exists.", False),
    },
    "Robust step": {
        "rule": Option(
            str | None,
            "Preset (bgmd, bgmd-paper, ...) or rule with its arguments, such as 'krum(n_bad=3)' or "
            "'mixing(n_bad=3) | geometric-median'; see `holdfast list rules`.",
            None,
            "rule",
            kind=Kind.RULES,
            show_default=f"{DEFAULT_RULE}; with --workers that of the scheme",
        ),
        "rules": Option(
            list[str] | None,
            "Rule to compare, a scheme with workers, or a preset with --rows; may be repeated.",
            kind=Kind.RULES,
            flags=("--rule",),
            show_default=f"{', '.join(METHODS)}; with --rows {', '.join(RULES)}",
        ),
        "selector": Option(
            str | None, "Columns that a step updates.", None, "selector", kind=Kind.SELECTORS
        ),
        "memory": Option(
            str | None,
            "For a step that selects before it aggregates: how the other columns are carried over; "
            "in units of gradients unless the optimizer is plain SGD.",
            field="memory",
            kind=Kind.MEMORIES,
        ),
        "worker_momentum": Option(
            float, "Momentum of each client's rows, such as 0.9.", 0.0, "worker_momentum"
        ),
        "trusted": Option(
            int, "Training samples set aside for zeno and trusted-reference.", 0, "n_trusted"
        ),
    },
    "Threat": {
        "attack": Option(
            str | None,
            "Attack on rows or corruption of samples, such as scaled-flip or "
            "'scaled-flip(factor=5)'; see `holdfast list attacks`.",
            field="threat",
            kind=Kind.ATTACKS,
        ),
        "lie": Option(
            str | None,
            "What bad workers report: huge, zero, nan, starve, low-signal.",
            None,
            "threat",
            kind=Kind.LIES,
        ),
        "corrupt": Option(
            float | None, "Bad fraction of rows or of samples.", None, "threat", min=0.0, max=1.0
        ),
        "fixed": Option(
            bool, "Keep the same rows or images bad; by default redrawn.", False, "threat"
        ),
        "whole_rows": Option(
            bool, "Corrupt all samples of bad rows, not single samples.", False, "threat"
        ),
    },
    "Workers": {
        "workers": Option(
            int | None,
            "Instead of --rows: workers who keep their samples, and who are bad always or never.",
            None,
            "workers",
            min=1,
        ),
        "send": Option(float | None, "Share that workers send, such as 0.02.", None, "workers"),
        "scheme": Option(
            str | None,
            "How workers send, such as 'rosdhb(momentum=0.99)'; see `holdfast list schemes`.",
            None,
            "workers",
            kind=Kind.SCHEMES,
            show_default="everything, or with --send exchange",
        ),
        "local_steps": Option(
            int | None, "Steps of each worker's optimizer per round.", None, "workers", min=1
        ),
        "outer_lr": Option(float, "Factor of the direction of a round.", 1.0, "workers"),
        "outer_momentum": Option(float, "Momentum of that direction.", 0.0, "workers"),
        "absent": Option(
            float, "Share of honest workers that miss each round.", 0.0, "workers", max=1.0
        ),
    },
    "Training": {
        "rows": Option(
            int | None,
            "Slices of the batch per step.",
            None,
            "n_rows",
            min=1,
            show_default=str(DEFAULT_ROWS),
        ),
        "batch": Option(int, "Samples per row.", 16, "row_size", min=1),
        "partition": Option(
            str,
            "How samples are divided: shuffled, shards, 'dirichlet(alpha=0.1)'.",
            "shuffled",
            "partition",
            kind=Kind.PARTITIONS,
        ),
        "steps": Option(
            int | None, "Number of steps; more extend a run in its folder.", None, "n_steps", min=1
        ),
        "epochs": Option(float | None, "Number of epochs, instead of --steps.", None, "n_steps"),
        "optimizer": Option(
            str | None,
            "sgd, 'sgd(momentum=0.9, nesterov=true)', adam, adamw.",
            None,
            "optimizer",
            kind=Kind.OPTIMIZERS,
            show_default=f"{DEFAULT_OPTIMIZER}; with --workers {WORKERS_OPTIMIZER}",
        ),
        "lr": Option(float | None, "Learning rate of the optimizer.", None, "optimizer"),
        "weight_decay": Option(float | None, "L2 penalty.", None, "optimizer"),
        "schedule": Option(
            str,
            "constant, 'exponential(decay=0.99)' per epoch, cosine, 'cosine-restarts(period=10)'.",
            "constant",
            "schedule",
            kind=Kind.SCHEDULES,
        ),
        "average": Option(
            float, "Test a mean of parameters over steps; weight of the past.", 0.0, "average"
        ),
    },
    "Run": {
        "seed": Option(int, "Root of all random numbers.", 0, "seed", min=0),
        "evaluate_every": Option(int, "Steps between tests.", 100, "evaluate_every", min=1),
        "rows_every": Option(
            int, "Steps between records of every row's weight.", 10, "rows_every", min=1
        ),
        "folder": Option(str | None, "Folder of the record; by default a new one in ./runs."),
        "runs": Option(Path, "Parent of all runs' folders.", Path("runs"), flags=("--folder",)),
        "data_dir": Option(
            Path | None, "Folder of data sets, searched first and fetched to (also HOLDFAST_DATA)."
        ),
        "offline": Option(bool, "Do not fetch missing data sets.", False),
        "device": Option(str, "Device: cpu, cuda, cuda:1, ...", "cpu"),
        "threads": Option(int | None, "CPU threads; by default torch decides.", min=1),
        "checkpoint_seconds": Option(
            float, "Time between checkpoints; 0 writes one after each step.", 30.0, min=0.0
        ),
    },
    "Output": {
        "tensorboard": Option(bool, "Also write TensorBoard files to the run's folder.", False),
        "quiet": Option(bool, "Print only errors and the result.", False, flags=("--quiet", "-q")),
        "json": Option(bool, "Print JSON; of a run, a line per entry of its record.", False),
    },
}
"""By panel of the help and by the name of the argument that a command receives."""

OPTIONS = {name: option for panel in TABLE.values() for name, option in panel.items()}
PANELS = {name: panel for panel, options in TABLE.items() for name in options}
