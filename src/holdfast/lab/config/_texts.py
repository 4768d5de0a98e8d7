"""Configurations as JSON and by name: rules, threats and runs."""

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from functools import partial
from typing import Any, TypeVar

from holdfast.aggregators import Aggregator, rules
from holdfast.checks import failure
from holdfast.lab.config._config import Config
from holdfast.lab.config._threat import Threat
from holdfast.lab.config._workers import Workers
from holdfast.lab.data import OwnData
from holdfast.lab.optimizers import optimizers
from holdfast.lab.partitions import partitions
from holdfast.lab.records import config_hash
from holdfast.lab.schedules import schedules
from holdfast.lab.schemes import schemes
from holdfast.registry import Registry, parse_call, unknown_name
from holdfast.robust_step import (
    Memory,
    ResidualMemory,
    SelectFirstStep,
    memories,
    preset,
    presets,
)
from holdfast.selectors import Selector, selectors
from holdfast.threats import Adversaries, attacks, corruptions, report_lies

T = TypeVar("T")
MAX_NAME_LENGTH = 180
"""Characters of a run's name before the hash; file systems take 255 in all."""

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")

PARTS: dict[str, Registry[Any]] = {
    "partition": partitions,
    "rule": rules,
    "selector": selectors,
    "memory": memories,
    "optimizer": optimizers,
    "schedule": schedules,
}
WORKER_PARTS: dict[str, Registry[Any]] = {"scheme": schemes}
THREAT_PARTS: dict[str, Registry[Any]] = {"attack": attacks, "corruption": corruptions}
LIES: dict[str, Registry[Any]] = {"lie": report_lies}


def config_to_json(config: Config) -> dict[str, Any]:
    """A mapping of plain values with every field, including those at their default.

    A configuration without workers has no field for them, nor one without an average, lies or own
    data for these.
    """
    data = _to_json(config, PARTS)
    if not config.average:
        del data["average"]
    workers = data.pop("workers")
    if workers is not None:
        data["workers"] = _to_json(workers, WORKER_PARTS)
    own_data = data.pop("own_data")
    if own_data is not None:
        data["own_data"] = {**asdict(own_data), "shape": list(own_data.shape)}
    data["threat"] = _to_json(config.threat, THREAT_PARTS | LIES)
    data["threat"]["adversaries"] = asdict(config.threat.adversaries)
    if data["threat"]["lie"] is None:
        del data["threat"]["lie"]
    return data


def config_from_json(data: Mapping[str, Any]) -> Config:
    """The configuration that :func:`config_to_json` described; missing fields get their default."""
    readers: dict[str, Callable[[Any], Any]]
    readers = {name: partial(_part_from_json, registry) for name, registry in PARTS.items()}
    readers |= {"threat": _threat_from_json, "workers": _workers_from_json}
    readers |= {"own_data": partial(_from_json, "own_data", OwnData, {})}
    return _from_json("config", Config, readers, data)


def hash_of(config: Config) -> str:
    """64 hexadecimal digits that change with any field."""
    return config_hash(config_to_json(config))


def run_name(config: Config) -> str:
    """A readable name for the folder of the run; no other configuration has the same.

    Example:
        >>> run_name(Config())
        'fashion-mnist-slice-lenet-radius-filter-seed-0-b44e1793'
    """
    threat, adversaries = format_threat(config.threat), config.threat.adversaries
    share = adversaries.bad_fraction if adversaries.n_bad is None else adversaries.n_bad
    rule = format_rule(config.rule, config.selector, config.memory)
    attacked = [] if threat == "none" else [f"{threat}-{share:g}"]
    scheme = [] if config.workers is None else [schemes.format(config.workers.scheme)]
    parts = [config.data, config.model, *scheme, rule, *attacked, f"seed-{config.seed}"]
    words = "-".join(re.sub(r"[^\w.]+", "-", part).strip("-") for part in parts)
    return f"{words[:MAX_NAME_LENGTH].rstrip('-')}-{hash_of(config)[:8]}"


def rule_names() -> list[str]:
    """The names that :func:`parse_rule` accepts: presets and rules."""
    return sorted([*presets, *rules.names])


def parse_rule(
    text: str, *, selector: str | None = None, memory: str | None = None, is_exact: bool = True
) -> dict[str, Any]:
    """The fields of :class:`Config` for a preset or rule, with a selector and a memory.

    Args:
        text: a preset such as `"bgmd(fraction=0.05)"` or a rule such as `"krum(n_bad=3)"`.
        selector: replaces the selector of the preset, or the choice of all columns.
        memory: replaces the memory of the preset; the step then selects before it aggregates.
        is_exact: whether a memory in units of parameters is exact under the run's optimizer and
            schedule. If not, memories whose text does not state units are in units of gradients.

    Example:
        >>> parse_rule("bgmd-paper", is_exact=False)["memory"]
        MeanMemory(units='gradient')
    """
    # A quoted argument, as in "bgmd(rule='sketched | krum(n_bad=2)')", is no stage of the text.
    stages = _QUOTED.sub("''", text).split("|")
    names = [stage.split("(")[0].strip() for stage in stages]
    for name in names:
        if name.replace("-", "_").isidentifier() and name not in rule_names():
            raise unknown_name("rule", rule_names(), name)
        if name in presets and len(names) > 1:
            raise failure(name, "be used without other rules, because it is a whole step", text)
    parts: dict[str, Any] = {}
    if names[0] in presets:
        step = preset(text)
        parts.update(rule=step.rule, selector=step.selector)
        if isinstance(step, SelectFirstStep):
            parts["memory"] = step.memory
    else:
        parts["rule"] = rules.parse(text)
    if selector is not None:
        parts["selector"] = selectors.parse(selector)
    if memory is not None:
        parts["memory"] = memories.parse(memory)
    if not is_exact and isinstance(parts.get("memory"), ResidualMemory):
        _, arguments = parse_call(text if memory is None else memory, "memory")
        if "units" not in arguments:
            parts["memory"] = replace(parts["memory"], units="gradient")
    return parts


def format_rule(rule: Aggregator, selector: Selector, memory: Memory | None) -> str:
    """A short text for a step: a preset of any units, or rule, selector and memory."""
    for name in presets:
        step, given = preset(name), (rule, selector, type(memory))
        own = step.memory if isinstance(step, SelectFirstStep) else None
        if given == (step.rule, step.selector, type(own)):
            return name
    parts = [rules.format(rule)]
    if not selector.takes_everything:
        parts += [selectors.format(selector)]
    if memory is not None:
        parts += [memories.format(memory)]
    return " + ".join(parts)


def threat_names() -> list[str]:
    """The names that :func:`parse_threat` accepts: attacks and corruptions."""
    return sorted([*attacks.names, *corruptions.names])


def parse_threat(text: str, adversaries: Adversaries, *, whole_rows: bool = False) -> Threat:
    """The threat of a text such as `"late(start=50) | scaled-flip"`, an attack or a corruption.

    Example:
        >>> parse_threat("scaled-flip", Adversaries(bad_fraction=0.4)).attack
        ScaledFlip(factor=100.0)
    """
    name, _ = parse_call(text.split("|")[0], "attack")
    for kind, registry in THREAT_PARTS.items():
        if name in registry.names:
            part = {kind: registry.parse(text)}
            return Threat(**part, adversaries=adversaries, whole_rows=whole_rows)
    raise unknown_name("attack", threat_names(), name)


def format_average(weight: float) -> str:
    """Describe the mean of the parameters with this weight of the past, by its length in steps.

    Example:
        >>> format_average(0.98)
        'mean of the parameters over some 50 steps'
    """
    n_steps = 1 / (1 - weight)
    length = f"{n_steps:,.0f}" if n_steps >= 10 else f"{n_steps:.2g}"
    return f"mean of the parameters over some {length} steps"


def format_threat(threat: Threat) -> str:
    """The text of a threat, such as `"scaled-flip(factor=5.0)"`, or "none"."""
    known = THREAT_PARTS | LIES
    parts = ((registry, getattr(threat, kind)) for kind, registry in known.items())
    texts = [registry.format(part) for registry, part in parts if part is not None]
    return " + ".join(texts) or "none"


def _to_json(
    part: Config | Threat | Workers, registries: Mapping[str, Registry[Any]]
) -> dict[str, Any]:
    values = {entry.name: getattr(part, entry.name) for entry in fields(part)}
    for name, registry in registries.items():
        values[name] = None if values[name] is None else registry.to_json(values[name])
    return values


def _from_json(
    name: str, kind: type[T], readers: Mapping[str, Callable[[Any], Any]], data: object
) -> T:
    """An object of the dataclass `kind`; values that are no plain values have a reader."""
    if not isinstance(data, Mapping):
        raise failure(name, "be a mapping", type(data).__name__)
    known = [entry.name for entry in fields(kind)]  # type: ignore[arg-type]
    for key in data:
        if key not in known:
            raise unknown_name(f"{name} field", known, key)
    given = {key: readers[key](value) for key, value in data.items() if key in readers}
    return kind(**{**data, **given})


def _part_from_json(registry: Registry[Any], part: Any) -> Any:
    return None if part is None else registry.from_json(part)


def _threat_from_json(data: object) -> Threat:
    known = THREAT_PARTS | LIES
    readers = {name: partial(_part_from_json, registry) for name, registry in known.items()}
    adversaries = partial(_from_json, "adversaries", Adversaries, {})
    return _from_json("threat", Threat, {**readers, "adversaries": adversaries}, data)


def _workers_from_json(data: object) -> Workers | None:
    if data is None:
        return None
    readers = {name: partial(_part_from_json, registry) for name, registry in WORKER_PARTS.items()}
    return _from_json("workers", Workers, readers, data)
