"""Configurations as JSON, and back."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from holdfast.checks import failure
from holdfast.lab.config._config import Config
from holdfast.lab.config._rules import all_rules
from holdfast.lab.config._threat import Threat
from holdfast.lab.optimizers import optimizers
from holdfast.lab.partitions import partitions
from holdfast.lab.records import config_hash
from holdfast.lab.schedules import schedules
from holdfast.memory import memories
from holdfast.registry import Registry, unknown_name
from holdfast.selectors import selectors
from holdfast.threats import Adversaries, attacks, corruptions

REGISTRIES: dict[str, Registry[Any]] = {
    "partition": partitions,
    "aggregator": all_rules,
    "selector": selectors,
    "memory": memories,
    "optimizer": optimizers,
    "schedule": schedules,
}


def config_to_json(config: Config) -> dict[str, Any]:
    """A mapping of plain values with every field, also those at their default."""
    data: dict[str, Any] = {}
    for entry in fields(config):
        value = getattr(config, entry.name)
        data[entry.name] = (
            REGISTRIES[entry.name].to_json(value) if entry.name in REGISTRIES else value
        )
    data["threat"] = {
        "attack": None if config.threat.attack is None else attacks.to_json(config.threat.attack),
        "corruption": None
        if config.threat.corruption is None
        else corruptions.to_json(config.threat.corruption),
        "adversaries": asdict(config.threat.adversaries),
        "whole_rows": config.threat.whole_rows,
        "repeats": config.threat.repeats,
    }
    return data


def config_from_json(data: Mapping[str, Any]) -> Config:
    """The configuration that :func:`config_to_json` described; fields that are missing have their default."""
    _check_keys("config", data, [entry.name for entry in fields(Config)])
    given: dict[str, Any] = dict(data)
    for name, registry in REGISTRIES.items():
        if name in given:
            given[name] = registry.from_json(given[name])
    if "threat" in given:
        given["threat"] = _threat_from_json(given["threat"])
    return Config(**given)


def hash_of(config: Config) -> str:
    """64 hexadecimal digits that change with any field."""
    return config_hash(config_to_json(config))


def _threat_from_json(data: Mapping[str, Any]) -> Threat:
    _check_keys("threat", data, [entry.name for entry in fields(Threat)])
    given: dict[str, Any] = dict(data)
    for name, registry in (("attack", attacks), ("corruption", corruptions)):
        if given.get(name) is not None:
            given[name] = registry.from_json(given[name])
    if "adversaries" in given:
        _check_keys(
            "adversaries", given["adversaries"], [entry.name for entry in fields(Adversaries)]
        )
        given["adversaries"] = Adversaries(**given["adversaries"])
    return Threat(**given)


def _check_keys(name: str, data: object, known: list[str]) -> None:
    if not isinstance(data, Mapping):
        raise failure(name, "be a mapping", type(data).__name__)
    for key in data:
        if key not in known:
            raise unknown_name(f"{name} field", known, key)
