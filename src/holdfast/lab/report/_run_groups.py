"""Runs without a study, grouped by configuration."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from typing import Any, final

from holdfast.aggregators import rules
from holdfast.lab.config import Config, Workers, config_from_json, format_rule, format_threat
from holdfast.lab.records import Summary
from holdfast.lab.schemes import SendEverything, schemes

CLEAN = "clean"
"""The threat of runs without one."""

UNGROUPED = ("seed", "evaluate_every", "rows_every")
"""Fields that do not separate groups: the seed, and what only says how often a run is recorded."""

NAMED = ("rule", "threat", "bad")
"""Settings that are derived from the configuration, as they are typed on the command line."""

COVERED = {
    "rule": ("rule",),
    "selector": ("rule",),
    "memory": ("rule",),
    "threat": ("threat", "bad"),
}
"""Fields of a configuration, and the named settings that usually tell them apart."""

TYPED = {"n_steps": "steps", "n_rows": "rows", "row_size": "batch", "n_trusted": "trusted"}
"""Fields whose option of the command line has another name."""


@final
@dataclass(frozen=True, kw_only=True)
class RunGroup:
    """Runs of one configuration, sorted by seed.

    `settings` are texts: those in :data:`NAMED`, and all fields of the configuration by path.
    """

    settings: Mapping[str, str]
    runs: tuple[Summary, ...]

    @property
    def is_attacked(self) -> bool:
        """Whether there is a threat."""
        return self.settings["threat"] != CLEAN

    @property
    def hashes(self) -> tuple[str, ...]:
        """The hashes of the runs."""
        return tuple(run.hash for run in self.runs)


def group_runs(runs: Iterable[Summary]) -> list[RunGroup]:
    """Group runs by configuration, sorted by their settings."""
    groups: dict[str, list[Summary]] = {}
    for run in runs:
        key = {name: value for name, value in run.config.items() if name not in UNGROUPED}
        groups.setdefault(json.dumps(key, sort_keys=True), []).append(run)
    made = [
        RunGroup(settings=_settings(some[0].config), runs=tuple(sorted(some, key=_seed)))
        for some in groups.values()
    ]
    return sorted(made, key=lambda group: list(group.settings.items()))


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


def short_names(names: Sequence[str]) -> list[str]:
    """Shorten `optimizer.lr` to `lr` and `optimizer.name` to `optimizer`, if that is unique."""
    short = [name.removesuffix(".name").rpartition(".")[2] for name in names]
    short = [TYPED.get(name, name).replace("_", "-") for name in short]
    return [a if short.count(a) == 1 else name for a, name in zip(short, names, strict=True)]


def ranges(numbers: Iterable[int]) -> str:
    """Format whole numbers, three or more in a row as a range.

    Example:
        >>> ranges([0, 1, 2, 5, 7, 8])
        '0 to 2, 5, 7, 8'
    """
    rows: list[list[int]] = []
    for n in sorted(set(numbers)):
        if rows and n == rows[-1][-1] + 1:
            rows[-1].append(n)
        else:
            rows.append([n])
    words = [f"{row[0]} to {row[-1]}" if len(row) > 2 else ", ".join(map(str, row)) for row in rows]
    return ", ".join(words)


def named_seeds(seeds: Iterable[object]) -> str:
    """Count seeds and list them; a single one would read as their number without its noun.

    Example:
        >>> named_seeds([0]), named_seeds([0, 1, 2])
        ('seed 0', '3 seeds: 0 to 2')
    """
    given = list(seeds)
    numbers = {seed for seed in given if isinstance(seed, int)}
    others = list(dict.fromkeys(str(seed) for seed in given if not isinstance(seed, int)))
    words = ", ".join(filter(None, [ranges(numbers), *others]))
    n = len(numbers) + len(others)
    return f"{n:,} seeds: {words}" if n > 1 else f"seed {words}" if n else ""


def _settings(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of a configuration, which may be of another version, or not ours."""
    fields = {name: value for name, value in config.items() if name not in UNGROUPED}
    try:
        known = config_from_json(config)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        named = _foreign(config)
    else:
        adversaries = known.threat.adversaries
        share, n_bad = adversaries.bad_fraction, adversaries.n_bad
        bad = f"{100 * (share or 0.0):g} %" if n_bad is None else str(n_bad)
        threat = format_threat(known.threat)
        named = (_method(known), *((CLEAN, "") if threat == "none" else (threat, bad)))
        fields |= {"threat": _threat(known, fields)} | _workers(known, fields)
    return dict(zip(NAMED, named, strict=True)) | dict(_leaves(fields))


def _foreign(config: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return names alone, of which the fields tell those apart that differ."""
    rule, threat = config.get("rule"), config.get("threat")
    parts = threat if isinstance(threat, Mapping) else {}
    attack, adversaries = parts.get("attack") or parts.get("corruption"), parts.get("adversaries")
    share = adversaries.get("bad_fraction") if isinstance(adversaries, Mapping) else None
    bad = f"{100 * share:g} %" if attack and isinstance(share, float) else ""
    return _name(rule, "unknown"), _name(attack, CLEAN), bad


def _method(config: Config) -> str:
    """Return what is compared: a rule, or the scheme of the workers and its rule."""
    rule = format_rule(config.rule, config.selector, config.memory)
    if config.workers is None or isinstance(config.workers.scheme, SendEverything):
        return rule
    scheme = config.workers.scheme
    name, _, more = schemes.format(scheme).partition("(")
    # The share that is sent is what most readers ask for, so it is shown even if it is the default.
    if (send := getattr(scheme, "send", None)) is not None and "send=" not in more:
        more = f"send={send:g}" + (f", {more}" if more else ")")
    text = f"{name}({more}" if more else name
    return text if config.rule == rules.parse(scheme.default_rule) else f"{text} + {rule}"


def _threat(config: Config, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a threat's name and share do not say: nothing where nobody is bad."""
    threat, share = config.threat, ("adversaries", "attack", "corruption", "lie")
    if format_threat(threat) == "none":
        return {}
    more = {name: value for name, value in fields["threat"].items() if name not in share and value}
    is_fixed = config.workers is None and not threat.adversaries.redrawn
    return {**more, **({"fixed": True} if is_fixed else {})}


def _workers(config: Config, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return what takes the place of some fields where rows have owners."""
    if config.workers is None:
        return {}
    usual = {entry.name: getattr(Workers(), entry.name) for entry in dataclass_fields(Workers)}
    own = {
        name: value
        for name, value in fields["workers"].items()
        if name != "scheme" and value != usual[name]
    }
    return {"workers": config.n_rows, "n_rows": None, **own}


def _name(part: object, default: str) -> str:
    return str(part.get("name", default)) if isinstance(part, Mapping) else default


def _leaves(node: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the paths and values of all fields but those in :data:`NAMED`, and not null."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from _leaves(value, f"{path}.{key}" if path else str(key))
    elif path not in NAMED and node is not None:
        yield path, node if isinstance(node, str) else json.dumps(node)


def _seed(run: Summary) -> tuple[str, str]:
    seed = run.config.get("seed")
    return f"{seed:020}" if isinstance(seed, int) else str(seed), run.hash
