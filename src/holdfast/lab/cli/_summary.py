"""Runs in words: their plan, their progress and their outcome."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.aggregators import rules
from holdfast.lab.config import Config, format_average, format_rule, format_threat
from holdfast.lab.optimizers import optimizers
from holdfast.lab.partitions import partitions
from holdfast.lab.records import Record
from holdfast.lab.schedules import schedules
from holdfast.lab.schemes import schemes
from holdfast.robust_step import memories
from holdfast.selectors import selectors

MOST_ROWS = 1000
"""With which a rule that resists bad rows resists one."""

Lines = list[tuple[str, str]]
"""Pairs of label and text."""


def plan(config: Config, folder: Path) -> Lines:
    """Describe what a run is going to do."""
    data = config.data_set
    noun = "images" if len(data.shape) == 3 else "samples"
    length = f"{_steps(config.n_steps)} ({config.n_epochs:.2g} epochs)"
    tested = f"{format_average(config.average)}, {config.average:g} of the past"
    return [
        ("data", f"{data.title}, {data.n_train:,} {noun}"),
        ("model", config.model),
        ("step", _step(config)),
        ("rows" if config.workers is None else "workers", _rows(config)),
        ("training", f"{length}, {optimizers.format(config.optimizer)}"),
        ("rate", f"{config.optimizer.lr:g}, {schedules.format(config.schedule)}"),
        *([("tested", tested)] if config.average else []),
        ("seed", str(config.seed)),
        ("record", str(folder)),
    ]


def defenseless(config: Config) -> str | None:
    """Say that the rule would resist bad rows, but none among so few; None if that is not so."""
    rule, n = config.rule, config.n_rows
    if rule.n_resisted(n) > 0:
        return None
    enough = next((m for m in range(n + 1, MOST_ROWS) if rule.n_resisted(m) > 0), None)
    if enough is None:  # as the mean, which resists none ever
        return None
    noun = "row" if config.workers is None else "worker"
    few = f"{n} {noun}" if n == 1 else f"{n} {noun}s"
    return f"With {few}, {rules.format(rule)} resists no bad {noun}; it needs at least {enough}."


def outcome(record: Record, resume: str) -> Lines:
    """Describe the result of a run; `resume` is the command that continues it."""
    lines = [("end", ending(record))]
    lines += [("accuracy", percent(record.accuracy))] if record.accuracy is not None else []
    found = [entry["attack_success"] for entry in record.entries if "attack_success" in entry]
    lines += [("attack success", percent(found[-1]))] if found else []
    lines += [("loss", _loss(record.entries[-1]["loss"]))] if record.entries else []
    if record.bad_weight is not None:
        lines += [("weight of bad rows", percent(record.bad_weight))]
    suspects = record.entries[-1].get("suspects") if record.entries else None
    lines += [("suspect rows", ", ".join(map(str, suspects)))] if suspects else []
    if record.bytes_per_round is not None:
        lines += [("bytes per worker and round", f"{record.bytes_per_round:,.0f}")]
    lines += [("time per step", _times(record))] if record.entries else []
    lines += [("record", str(record.folder))]
    return lines + ([("to resume", resume)] if record.end is None else [])


def ending(record: Record) -> str:
    """Describe how a run ended."""
    if record.end is None:
        return f"stopped after step {record.n_steps:,} of {record.config['n_steps']:,}"
    if record.end["end"] == "diverged":
        return f"diverged. {record.end['reason']}"
    seconds = sum(record.seconds_per_step().values()) * record.n_steps
    return f"finished after {_steps(record.n_steps)}, {duration(seconds)}"


def last_line(record: Record, resume: str) -> str:
    """Describe the result of a run in one line."""
    accuracy = "" if record.accuracy is None else f", accuracy {percent(record.accuracy)}"
    hint = f" (to resume: {resume})" if record.end is None else ""
    return f"{ending(record).rstrip('.')}{accuracy}; record in {record.folder}{hint}"


def result_of(record: Record) -> str:
    """Describe the result of a run in a few words."""
    if record.end is None:
        return f"stopped after step {record.n_steps:,}"
    if record.end["end"] == "diverged":
        return f"diverged after step {record.end['step']:,}"
    return percent(record.accuracy)


def resume_command(folder: Path, *, data_dir: Path | None = None) -> str:
    """Return the command that resumes a run.

    Example:
        >>> resume_command(Path("my run"), data_dir=Path("data"))
        "holdfast resume 'my run' --data-dir data"
    """
    words = ["holdfast", "resume", f"./{folder}" if str(folder).startswith("-") else str(folder)]
    return shlex.join(words + ([] if data_dir is None else ["--data-dir", str(data_dir)]))


def progress_words(entry: Mapping[str, Any], n_rows: int) -> list[str]:
    """Describe the state of a run by its latest entry and the last accuracy."""
    words = [f"loss {_loss(entry['loss'])}"]
    words += [f"accuracy {percent(entry['accuracy'])}"] if entry.get("accuracy") is not None else []
    words += [f"rejected {entry['n_rejected']}/{n_rows}"]
    if entry.get("bad_weight") is not None:
        words += [f"bad rows' weight {percent(entry['bad_weight'])}"]
    return words


def percent(share: float | None) -> str:
    """Format a fraction in percent."""
    return "" if share is None else f"{100 * share:.1f} %"


def duration(seconds: float) -> str:
    """Format a time: "47 s", "3 min 05 s", "2 h 10 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _steps(n: int) -> str:
    return f"{n} step" if n == 1 else f"{n:,} steps"


def _loss(loss: float) -> str:
    return f"{loss:.3f}" if loss < 1000 else f"{loss:.1e}"


def _step(config: Config) -> str:
    name = format_rule(config.rule, config.selector, config.memory)
    if config.selector.takes_everything:
        return name
    text = f"{name}: {rules.format(config.rule)}, {selectors.format(config.selector)}"
    return text if config.memory is None else f"{text}, memory {memories.format(config.memory)}"


def _rows(config: Config) -> str:
    text = f"{config.n_rows} of {config.row_size} samples, {partitions.format(config.partition)}"
    if config.workers is not None:
        text += f", {schemes.format(config.workers.scheme)}"
    threat = config.threat
    if threat.attack is None and threat.corruption is None:
        return f"{text}; none is bad"
    who = "redrawn at every step" if threat.adversaries.redrawn else "the same at every step"
    if threat.hits_rows:
        bad = f"{threat.adversaries.count(config.n_rows)} of {config.n_rows}"
    else:
        whole = config.batch_size if threat.adversaries.redrawn else config.data_set.n_train
        bad = f"{threat.adversaries.count(whole):,} of {whole:,} samples"
    return f"{text}; {bad} bad ({format_threat(threat)}), {who}"


def _times(record: Record) -> str:
    parts = record.seconds_per_step()
    evaluation = parts.pop("evaluation", 0.0) * record.n_steps
    slowest_first = sorted(parts.items(), key=lambda item: -item[1])
    listed = ", ".join(f"{part} {1000 * seconds:.0f} ms" for part, seconds in slowest_first)
    total = f"{1000 * sum(parts.values()):.0f} ms"
    return f"{total} ({listed}); evaluation {duration(evaluation)} in all"
