"""A run in words: what it is before, what came of it after."""

import shlex
from pathlib import Path
from typing import Any

from holdfast.lab.config import Config, all_rules, format_rule, format_threat
from holdfast.lab.data import data_sets
from holdfast.lab.optimizers import optimizers
from holdfast.lab.partitions import partitions
from holdfast.lab.records import Record
from holdfast.lab.schedules import schedules
from holdfast.memory import memories
from holdfast.selectors import selectors

Lines = list[tuple[str, str]]
"""A label and what it stands for."""


def plan(config: Config, folder: object) -> Lines:
    """What a run is going to do."""
    described = data_sets[config.data]
    return [
        ("data", f"{described.title}, {described.n_train:,} images"),
        ("model", config.model),
        ("step", _step(config)),
        ("rows", _rows(config)),
        (
            "training",
            f"{_steps(config.n_steps)} ({config.n_epochs:.2g} epochs), {optimizers.format(config.optimizer)}",
        ),
        ("rate", f"{config.optimizer.lr:g}, {schedules.format(config.schedule)}"),
        ("seed", str(config.seed)),
        ("record", str(folder)),
    ]


def outcome(record: Record, go_on: str) -> Lines:
    """What came of a run; `go_on` is the command that continues it."""
    lines = [("end", ending(record))]
    lines += [("accuracy", percent(record.accuracy))] if record.accuracy is not None else []
    found = [entry["attack_success"] for entry in record.entries if "attack_success" in entry]
    lines += [("attack success", percent(found[-1]))] if found else []
    lines += [("loss", _loss(record.entries[-1]["loss"]))] if record.entries else []
    lines += (
        [("weight of bad rows", percent(record.bad_weight))]
        if record.bad_weight is not None
        else []
    )
    lines += [("a step", _times(record))] if record.entries else []
    lines += [("record", str(record.folder))]
    return lines + ([("to go on", go_on)] if record.end is None else [])


def ending(record: Record) -> str:
    """How the run ended, in one line."""
    if record.end is None:
        return f"stopped after step {record.n_steps} of {record.config['n_steps']}"
    if record.end["end"] == "diverged":
        return f"diverged. {record.end['reason']}"
    return f"finished after {_steps(record.n_steps)}, {duration(sum(record.seconds_per_step().values()) * record.n_steps)}"


def last_line(record: Record, go_on: str) -> str:
    """Everything that matters, in one line."""
    accuracy = "" if record.accuracy is None else f", accuracy {percent(record.accuracy)}"
    hint = f" (to go on: {go_on})" if record.end is None else ""
    return f"{ending(record).rstrip('.')}{accuracy}; record in {record.folder}{hint}"


def resume_command(folder: Path, **options: object) -> str:
    """What to type to continue a run, with the options that it needs again.

    Example:
        >>> resume_command(Path("my run"), data_dir=Path("data"), device=None)
        "holdfast resume 'my run' --data-dir data"
    """
    words = ["holdfast", "resume", f"./{folder}" if str(folder).startswith("-") else str(folder)]
    for name, value in options.items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


def progress_words(entry: dict[str, Any], n_rows: int) -> list[str]:
    """How a run stands, from the latest entry and the accuracy so far."""
    words = [f"loss {_loss(entry['loss'])}"]
    words += [f"accuracy {percent(entry['accuracy'])}"] if entry.get("accuracy") is not None else []
    words += [f"rejected {entry['n_rejected']}/{n_rows}"]
    return words + (
        [f"bad rows' weight {percent(entry['bad_weight'])}"] if "bad_weight" in entry else []
    )


def percent(share: float | None) -> str:
    """The share in percent."""
    return "" if share is None else f"{100 * share:.1f} %"


def duration(seconds: float) -> str:
    """The time in words: "47 s", "3 min 05 s", "2 h 10 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _steps(n: int) -> str:
    return f"{n} step" if n == 1 else f"{n} steps"


def _loss(loss: float) -> str:
    return f"{loss:.3f}" if loss < 1000 else f"{loss:.1e}"


def _step(config: Config) -> str:
    name = format_rule(config.aggregator, config.selector, config.memory)
    if config.selector.takes_everything:
        return name
    parts = [
        all_rules.format(config.aggregator),
        selectors.format(config.selector),
        f"memory {memories.format(config.memory)}",
    ]
    return f"{name}: {', '.join(parts)}"


def _rows(config: Config) -> str:
    text = f"{config.n_rows} of {config.row_size} samples, {partitions.format(config.partition)}"
    threat = config.threat
    if threat.attack is None and threat.corruption is None:
        return f"{text}; none is bad"
    who = "redrawn at every step" if threat.adversaries.redrawn else "the same at every step"
    if threat.hits_rows:
        return f"{text}; {threat.adversaries.count(config.n_rows)} of {config.n_rows} bad ({format_threat(threat)}), {who}"
    whole = config.batch_size if threat.adversaries.redrawn else data_sets[config.data].n_train
    return f"{text}; {threat.adversaries.count(whole):,} of {whole:,} samples bad ({format_threat(threat)}), {who}"


def _times(record: Record) -> str:
    parts = record.seconds_per_step()
    evaluation = parts.pop("evaluation", 0.0) * record.n_steps
    listed = ", ".join(
        f"{part} {1000 * seconds:.0f} ms"
        for part, seconds in sorted(parts.items(), key=lambda item: -item[1])
    )
    return (
        f"{1000 * sum(parts.values()):.0f} ms ({listed}); evaluation {duration(evaluation)} in all"
    )
