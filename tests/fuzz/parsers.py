"""Texts that users type, and configurations that files hold."""

import random
from dataclasses import fields
from pathlib import Path
from typing import Any

from holdfast.aggregators import rules
from holdfast.lab.config import (
    Config,
    Threat,
    Workers,
    config_from_json,
    config_to_json,
    hash_of,
    parse_rule,
    parse_threat,
    run_name,
)
from holdfast.lab.optimizers import optimizers
from holdfast.lab.partitions import Shards, partitions
from holdfast.lab.schedules import schedules
from holdfast.lab.schemes import schemes
from holdfast.registry import Registry
from holdfast.robust_step import memories, presets
from holdfast.selectors import selectors
from holdfast.threats import Adversaries, Huddle, WrongLabels, attacks, corruptions, report_lies
from tests.fuzz.mutation import VALUES, mutated_json, mutated_text

REGISTRIES: tuple[Registry[Any], ...] = (
    *(rules, attacks, corruptions, report_lies, selectors, memories, optimizers, schedules),
    *(partitions, schemes),
)

CONFIGS = [
    config_to_json(config)
    for config in (
        Config(),
        Config(**parse_rule("bgmd-paper"), n_rows=8),
        Config(**parse_rule("mixing(n_bad=2) | clipping(radius=1.0) | krum(n_bad=2)")),
        Config(
            workers=Workers(local_steps=2, absent=0.1),
            threat=Threat(
                attack=Huddle(),
                lie=report_lies.parse("huge"),
                adversaries=Adversaries(bad_fraction=0.25, redrawn=False),
            ),
        ),
        Config(
            partition=Shards(),
            worker_momentum=0.9,
            threat=Threat(corruption=WrongLabels(), adversaries=Adversaries(n_bad=3)),
        ),
    )
]


def stage(registry: Registry[Any], chance: random.Random) -> str:
    """A name with arguments, most of which it has."""
    name = chance.choice(registry.names)
    known = [field.name for field in fields(registry[name])]
    keys = chance.choices([*known, "n_bad", "x", "name"], k=chance.choice((0, 1, 1, 2, 3)))
    arguments = ", ".join(f"{key}={chance.choice(VALUES)}" for key in keys)
    return f"{name}({arguments})" if arguments or chance.random() < 0.1 else name


def names(chance: random.Random, folder: Path) -> None:
    """Texts such as `"mixing(n_bad=3) | krum(n_bad=3)"`, for all registries."""
    registry = chance.choice(REGISTRIES)
    n_stages = chance.choice((1, 1, 1, 2, 2, 3, 25 if chance.random() < 0.05 else 1))
    text = " | ".join(stage(registry, chance) for _ in range(n_stages))
    text = mutated_text(text, chance) if chance.random() < 0.4 else text
    member = registry.parse(text)
    if "nan" not in (shown := registry.format(member)):
        assert registry.parse(shown) == member, shown
    assert registry.from_json(registry.to_json(member)) is not None


def options(chance: random.Random, folder: Path) -> None:
    """Texts of the options `--rule`, `--selector`, `--memory` and `--attack`."""
    if chance.random() < 0.3:
        registry = chance.choice((attacks, corruptions))
        text = mutated_text(stage(registry, chance), chance)
        parse_threat(text, Adversaries(bad_fraction=0.25), whole_rows=chance.random() < 0.2)
        return
    argument = f"{chance.choice(('fraction', 'tile', 'rule', 'x'))}={chance.choice(VALUES)}"
    preset = f"{chance.choice(list(presets))}({argument})"
    text = chance.choice((preset, stage(rules, chance), mutated_text(preset, chance)))
    selector = stage(selectors, chance) if chance.random() < 0.3 else None
    memory = stage(memories, chance) if chance.random() < 0.3 else None
    parse_rule(text, selector=selector, memory=memory, is_exact=chance.random() < 0.5)


def configurations(chance: random.Random, folder: Path) -> None:
    """Configurations as JSON: what is accepted has a hash and a name, and can be written again."""
    config = config_from_json(mutated_json(chance.choice(CONFIGS), chance))
    assert hash_of(config_from_json(config_to_json(config))) == hash_of(config)
    assert len(run_name(config).encode()) < 255
