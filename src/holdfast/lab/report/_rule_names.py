"""What runs are called whose study is not known: the names in their configuration, with the arguments in which they differ."""

from collections.abc import Mapping, Sequence
from typing import Any

NOTHING = ("everything", "none")
"""Selectors and memories that are not worth a word."""


def names_of(configs: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """For each configuration the rule and the threat."""
    parts = [_parts(config) for config in configs]
    everything = [part for some in parts for part in some.values()]
    named = [{kind: _name(part, everything) for kind, part in some.items()} for some in parts]
    rules = [
        ", ".join(some[kind] for kind in ("aggregator", "selector", "memory") if kind in some)
        for some in named
    ]
    threats = [
        " and ".join(some[kind] for kind in ("attack", "corruption") if kind in some)
        for some in named
    ]
    return [
        (rule or "unknown", threat or "none") for rule, threat in zip(rules, threats, strict=True)
    ]


def share_of(config: Mapping[str, Any]) -> str:
    """How many are bad: a share, a number, or nothing."""
    threat = config.get("threat")
    adversaries = threat.get("adversaries") if isinstance(threat, Mapping) else None
    if not isinstance(adversaries, Mapping) or not (
        threat and (threat.get("attack") or threat.get("corruption"))
    ):
        return ""
    fraction, n_bad = adversaries.get("bad_fraction"), adversaries.get("n_bad")
    return (
        f"{fraction:.0%}"
        if isinstance(fraction, (int, float))
        else ""
        if n_bad is None
        else str(n_bad)
    )


def _parts(config: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    threat = config.get("threat")
    found = {kind: config.get(kind) for kind in ("aggregator", "selector", "memory")}
    found |= (
        {kind: threat.get(kind) for kind in ("attack", "corruption")}
        if isinstance(threat, Mapping)
        else {}
    )
    return {
        kind: part
        for kind, part in found.items()
        if isinstance(part, Mapping) and part.get("name") not in NOTHING
    }


def _name(part: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> str:
    alike = [other for other in others if other.get("name") == part.get("name")]
    differing = [
        key for key in part if key != "name" and any(other.get(key) != part[key] for other in alike)
    ]
    arguments = ", ".join(f"{key}={_value(part[key])}" for key in differing)
    inner = [
        value for key, value in part.items() if isinstance(value, Mapping) and key not in differing
    ]
    name = (
        f"{part.get('name', 'unknown')}({arguments})"
        if arguments
        else str(part.get("name", "unknown"))
    )
    return " | ".join([name, *(_name(value, [value]) for value in inner)])


def _value(value: Any) -> str:
    return _name(value, [value]) if isinstance(value, Mapping) else str(value)
