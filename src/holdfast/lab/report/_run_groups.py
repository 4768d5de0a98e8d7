"""Runs without a study, grouped by configuration."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from holdfast.lab.config import config_from_json, format_rule, format_threat
from holdfast.lab.records import Summary
from holdfast.lab.report._collection import Collection
from holdfast.lab.report._formatting import ending
from holdfast.lab.report._outcome import outcome
from holdfast.lab.report.figures import Curves, DataTable
from holdfast.lab.report.figures._metrics import accuracy_in_percent

NAMED = ("data", "model", "rule", "threat", "bad")
"""Settings that are derived from the configuration, as they are typed on the command line."""

COVERED = {
    "rule": ("rule",),
    "selector": ("rule",),
    "memory": ("rule",),
    "threat": ("threat", "bad"),
}
"""Fields of a configuration, and the named settings that usually tell them apart."""

_NUMERIC = re.compile(r"[\d.,%e+-]*")


@final
@dataclass(frozen=True, kw_only=True)
class RunGroup:
    """Runs of one configuration, sorted by seed.

    `settings` are texts: those in :data:`NAMED`, and all fields of the configuration by path.
    """

    settings: Mapping[str, str]
    runs: tuple[Summary, ...]


def group_runs(runs: Iterable[Summary]) -> list[RunGroup]:
    """Group runs by configuration, sorted by their settings."""
    groups: dict[str, list[Summary]] = {}
    for run in runs:
        key = {name: value for name, value in run.config.items() if name != "seed"}
        groups.setdefault(json.dumps(key, sort_keys=True), []).append(run)
    made = [
        RunGroup(settings=_settings(some[0].config), runs=tuple(sorted(some, key=_seed)))
        for some in groups.values()
    ]
    return sorted(made, key=lambda group: list(group.settings.items()))


def group_table(groups: Sequence[RunGroup]) -> DataTable:
    """Make a table with one line per group: the rule, and a column per setting that differs."""
    names = [name for name in NAMED if name == "rule" or _differ(groups, name)]
    names += differing(groups)
    columns = (*_short_names(names), "seeds", "accuracy (%)", "end")
    rows = [
        (
            *(group.settings.get(name, "") for name in names),
            ", ".join(str(run.config.get("seed", "")) for run in group.runs),
            _accuracy(group),
            "; ".join(dict.fromkeys(ending(run) for run in group.runs)),
        )
        for group in groups
    ]
    is_text = [any(not _NUMERIC.fullmatch(row[i]) for row in rows) for i in range(len(columns))]
    texts = {i for i, some in enumerate(is_text) if some} - {columns.index("accuracy (%)")}
    return DataTable(
        caption="Final test accuracy", columns=columns, rows=tuple(rows), texts=frozenset(texts)
    )


def group_summary(groups: Sequence[RunGroup]) -> str:
    """Describe the settings that all groups have in common."""
    names = [name for name in NAMED if name != "rule" and not _differ(groups, name)]
    shared = [f"{name} {groups[0].settings[name]}" for name in names if groups[0].settings[name]]
    about = "One line per configuration, with mean and range over its seeds."
    return f"{about} In common: {', '.join(shared)}." if shared else about


def group_curves(groups: Sequence[RunGroup]) -> Curves:
    """Make curves with a panel per data set, model and threat, and a line per group."""
    by_panel: dict[str, list[RunGroup]] = {}
    for group in groups:
        data, model, _, threat, bad = (group.settings[name] for name in NAMED)
        words = (data, model, "no threat" if threat == "none" else f"{threat} {bad}".strip())
        by_panel.setdefault(", ".join(filter(None, words)), []).append(group)
    # All panels use the same names, so that a method has one label and one color.
    names = dict.fromkeys(name for some in by_panel.values() for name in differing(some))
    panels = {title: _lines(some, list(names)) for title, some in by_panel.items()}
    return Curves(title="Test accuracy over the steps", x="step", y="accuracy", panels=panels)


def differing(groups: Sequence[RunGroup]) -> list[str]:
    """Return the fields in which groups differ that their rule and threat do not tell apart."""
    names = dict.fromkeys(name for group in groups for name in group.settings if name not in NAMED)
    found = []
    for name in names:
        values: dict[tuple[str, ...], set[str | None]] = {}
        for group in groups:
            alike = tuple(group.settings[key] for key in COVERED.get(name.split(".")[0], ()))
            values.setdefault(alike, set()).add(group.settings.get(name))
        if any(len(some) > 1 for some in values.values()):
            found.append(name)
    return found


def _differ(groups: Sequence[RunGroup], name: str) -> bool:
    return len({group.settings[name] for group in groups}) > 1


def _lines(groups: Sequence[RunGroup], names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    lines: dict[str, tuple[str, ...]] = {}
    for group in groups:
        pairs = zip(_short_names(names), names, strict=True)
        more = [
            f"{short} {group.settings[name]}" for short, name in pairs if name in group.settings
        ]
        label = ", ".join([group.settings["rule"], *more])
        lines[label] = (*lines.get(label, ()), *(run.hash for run in group.runs))
    return lines


def _accuracy(group: RunGroup) -> str:
    runs = {run.hash: run for run in group.runs}
    found = Collection(runs=runs, measurements={}, studies=())
    return outcome(found, list(runs), accuracy_in_percent).words()


def _settings(config: Mapping[str, Any]) -> dict[str, str]:
    data, model = (str(config.get(name, "")) for name in ("data", "model"))
    named = dict(zip(NAMED, (data, model, *_typed(config)), strict=True))
    return named | {name: value for name, value in _leaves(config) if name not in (*NAMED, "seed")}


def _typed(config: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return rule, threat and share of bad rows as they are typed on the command line."""
    try:
        known = config_from_json(config)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        # Of another version, or not ours: the name alone; other fields become columns.
        rule, threat = config.get("rule"), config.get("threat")
        attack = (
            threat.get("attack") or threat.get("corruption")
            if isinstance(threat, Mapping)
            else None
        )
        return _name(rule, "unknown"), _name(attack, "none"), ""
    adversaries = known.threat.adversaries
    share = f"{adversaries.bad_fraction:.0%}" if adversaries.n_bad is None else adversaries.n_bad
    threat_text = format_threat(known.threat)
    rule_text = format_rule(known.rule, known.selector, known.memory)
    return rule_text, threat_text, "" if threat_text == "none" else str(share)


def _name(part: object, default: str) -> str:
    return str(part.get("name", default)) if isinstance(part, Mapping) else default


def _leaves(node: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the paths and values of all fields."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from _leaves(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, node if isinstance(node, str) else json.dumps(node)


def _short_names(names: Sequence[str]) -> list[str]:
    """Shorten `optimizer.lr` to `lr` and `optimizer.name` to `optimizer`, if that is unique."""
    short = [name.removesuffix(".name").rpartition(".")[2] for name in names]
    return [a if short.count(a) == 1 else name for a, name in zip(short, names, strict=True)]


def _seed(run: Summary) -> tuple[str, str]:
    seed = run.config.get("seed")
    return f"{seed:020}" if isinstance(seed, int) else str(seed), run.hash
