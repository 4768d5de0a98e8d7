"""Options that several commands have."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from holdfast.lab.config import rule_names, threat_names
from holdfast.lab.data import data_sets
from holdfast.lab.models import models
from holdfast.lab.optimizers import optimizers
from holdfast.lab.partitions import partitions
from holdfast.lab.schedules import schedules
from holdfast.memory import memories
from holdfast.selectors import selectors


def _names(known: list[str]) -> Callable[[str], list[str]]:
    """What the shell offers after TAB."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in known if name.startswith(incomplete)]

    return complete


complete_data = _names(list(data_sets))
complete_rules = _names(rule_names())
complete_threats = _names(threat_names())

STEP, THREAT, TRAINING, RUN, OUTPUT = (
    "The robust step",
    "What goes wrong",
    "Training",
    "The run",
    "Output",
)

Data = Annotated[
    str,
    typer.Option(
        "--data", help="Data set; see `holdfast list data`.", autocompletion=complete_data
    ),
]
Model = Annotated[
    str,
    typer.Option(
        "--model",
        help="Architecture; see `holdfast list models`.",
        autocompletion=_names(list(models)),
    ),
]
Rule = Annotated[
    str,
    typer.Option(
        "--rule",
        help="A preset (bgmd, bgmd-paper, ...) or a rule with its arguments, such as 'krum(n_bad=3)' or 'mixing(n_bad=3) | geometric-median'; see `holdfast list rules`.",
        autocompletion=complete_rules,
        rich_help_panel=STEP,
    ),
]
SelectorText = Annotated[
    str | None,
    typer.Option(
        "--selector",
        help="Which columns a step moves, if not those of the preset.",
        autocompletion=_names(selectors.names),
        rich_help_panel=STEP,
    ),
]
MemoryText = Annotated[
    str | None,
    typer.Option(
        "--memory",
        help="What becomes of the others. Units of gradients unless the optimizer is plain SGD.",
        autocompletion=_names(memories.names),
        rich_help_panel=STEP,
    ),
]
WorkerMomentumShare = Annotated[
    float,
    typer.Option(
        "--worker-momentum",
        help="Average each client's rows over time by this factor, as 0.9.",
        rich_help_panel=STEP,
    ),
]
Trusted = Annotated[
    int,
    typer.Option(
        "--trusted",
        help="Training samples kept aside for rules that need trusted ones (zeno, trusted-reference).",
        rich_help_panel=STEP,
    ),
]
AttackText = Annotated[
    str | None,
    typer.Option(
        "--attack",
        help="An attack on rows or a corruption of samples, such as blur or 'scaled-flip(factor=5)'; see `holdfast list attacks`.",
        autocompletion=complete_threats,
        rich_help_panel=THREAT,
    ),
]
Corrupt = Annotated[
    float | None,
    typer.Option(
        "--corrupt",
        min=0.0,
        max=1.0,
        help="The share that is bad, of the rows (attacks) or of the samples (corruptions).",
        rich_help_panel=THREAT,
    ),
]
Fixed = Annotated[
    bool,
    typer.Option(
        "--fixed",
        help="The same rows, or images, are bad at every step; otherwise they are drawn anew.",
        rich_help_panel=THREAT,
    ),
]
WholeRows = Annotated[
    bool,
    typer.Option(
        "--whole-rows",
        help="A corruption hits all samples of bad rows, not single samples of all rows.",
        rich_help_panel=THREAT,
    ),
]
NRows = Annotated[
    int,
    typer.Option(
        "--rows",
        min=1,
        help="Rows of a step (slices of the batch, or clients).",
        rich_help_panel=TRAINING,
    ),
]
RowSize = Annotated[
    int, typer.Option("--batch", min=1, help="Samples of each row.", rich_help_panel=TRAINING)
]
PartitionText = Annotated[
    str,
    typer.Option(
        "--partition",
        help="Who holds which samples: shuffled, shards, 'dirichlet(alpha=0.1)'.",
        autocompletion=_names(partitions.names),
        rich_help_panel=TRAINING,
    ),
]
NSteps = Annotated[
    int | None, typer.Option("--steps", min=1, help="How many steps.", rich_help_panel=TRAINING)
]
NEpochs = Annotated[
    float | None,
    typer.Option("--epochs", help="The same in passes over the data.", rich_help_panel=TRAINING),
]
OptimizerText = Annotated[
    str,
    typer.Option(
        "--optimizer",
        help="sgd, 'sgd(momentum=0.9, nesterov=true)', adam.",
        autocompletion=_names(optimizers.names),
        rich_help_panel=TRAINING,
    ),
]
Lr = Annotated[
    float | None,
    typer.Option(
        "--lr", help="Learning rate, if not the optimizer's usual one.", rich_help_panel=TRAINING
    ),
]
WeightDecay = Annotated[
    float | None, typer.Option("--weight-decay", help="L2 penalty.", rich_help_panel=TRAINING)
]
ScheduleText = Annotated[
    str,
    typer.Option(
        "--schedule",
        help="constant, 'exponential(decay=0.99)' per epoch, cosine, 'cosine-restarts(period=10)'.",
        autocompletion=_names(schedules.names),
        rich_help_panel=TRAINING,
    ),
]
Seed = Annotated[
    int, typer.Option("--seed", min=0, help="Root of all random numbers.", rich_help_panel=RUN)
]
EvaluateEvery = Annotated[
    int,
    typer.Option(
        "--evaluate-every",
        min=1,
        help="Steps between evaluations on the test set.",
        rich_help_panel=RUN,
    ),
]
RowsEvery = Annotated[
    int,
    typer.Option(
        "--rows-every",
        min=1,
        help="Steps between records of every row's weight.",
        rich_help_panel=RUN,
    ),
]
Folder = Annotated[
    str | None,
    typer.Option(
        "--folder",
        help="For record and checkpoints; by default a name of its own below ./runs.",
        rich_help_panel=RUN,
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        help="Where data sets are looked for first, and fetched to (also HOLDFAST_DATA).",
        rich_help_panel=RUN,
    ),
]
Offline = Annotated[
    bool,
    typer.Option("--offline", help="Do not fetch a data set that is missing.", rich_help_panel=RUN),
]
Device = Annotated[
    str,
    typer.Option("--device", help="Where to compute: cpu, cuda, cuda:1, ...", rich_help_panel=RUN),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        help="Threads of torch on the CPU; its own choice by default.",
        rich_help_panel=RUN,
    ),
]
CheckpointSeconds = Annotated[
    float,
    typer.Option(
        "--checkpoint-seconds",
        min=0.0,
        help="Time between checkpoints; 0 makes one after each step.",
        rich_help_panel=RUN,
    ),
]
WantsTensorBoard = Annotated[
    bool,
    typer.Option(
        "--tensorboard",
        help="Also write event files for TensorBoard into the run's folder.",
        rich_help_panel=OUTPUT,
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print the last line alone.", rich_help_panel=OUTPUT)
]
Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print every entry of the record as a line of JSON, and a last line about the end.",
        rich_help_panel=OUTPUT,
    ),
]
