"""Configurations and threats refuse every mistake by a sentence, before the run."""

import math
import re
from dataclasses import replace
from typing import Any

import pytest
import torch

from holdfast.aggregators import rules
from holdfast.geometry import DenseRows
from holdfast.lab.config import Config, Threat, config_from_json
from holdfast.lab.optimizers import Adam, Sgd
from holdfast.lab.partitions import Dirichlet, Shards, Shuffled
from holdfast.lab.schedules import CosineRestarts, Exponential
from holdfast.robust_step import MeanMemory, NoMemory, RobustStep, SelectFirstStep
from holdfast.selectors import TopNorm
from holdfast.threats import (
    Adversaries,
    Backdoor,
    Blur,
    GaussianNoise,
    NoisyRows,
    ScaledFlip,
    WrongLabels,
)
from tests.threats.cases import refusal

NAN, INF = float("nan"), float("inf")
KRUM, ZENO, TRUSTED = map(rules.parse, ("krum(n_bad=2)", "zeno(n_bad=2)", "trusted-reference"))
COMPARES = (
    r"`n_trusted` must be at least 1, because {}\(.*\) compares with trusted samples, got 0\."
)


def attacked(**adversaries: Any) -> Threat:
    return Threat(attack=ScaledFlip(), adversaries=Adversaries(**adversaries))


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"data": "fashion-mnist-slise"},
     r"`data` must be .*, got 'fashion-mnist-slise' \(did you mean 'fashion-mnist-slice'\?\)\."),
    ({"data": None}, r"`data` must be one of .*, got None\."),
    ({"data": []}, r"`data` must be one of .*, got \[\]\."),
    ({"model": "resnet_18"},
     r"`model` must be one of .*, got 'resnet_18' \(did you mean 'resnet-18'\?\)\."),
    ({"model": {}}, r"`model` must be one of .*, got \{\}\."),
    ({"partition": "shards"}, r"`partition` must be a Partition, got str\."),
    ({"rule": None}, r"`rule` must be an Aggregator, got NoneType\."),
    ({"selector": NoMemory()}, r"`selector` must be a Selector, got NoMemory\."),
    ({"memory": 3}, r"`memory` must be a Memory, got int\."),
    ({"threat": ScaledFlip()}, r"`threat` must be a Threat, got ScaledFlip\."),
    ({"optimizer": 0.1}, r"`optimizer` must be an? OptimizerSpec, got float\."),
    ({"schedule": "cosine"}, r"`schedule` must be a Schedule, got str\."),
    *(
        ({name: value},
         rf"`{name}` must be a whole number of at least 1, got {re.escape(str(value))}\.")
        for name in ("n_rows", "row_size", "n_steps", "evaluate_every", "rows_every")
        for value in (0, -1, 1.5, True, "3", None)
    ),
    *(
        ({name: value},
         rf"`{name}` must be a whole number of at least 0, got {re.escape(str(value))}\.")
        for name in ("n_trusted", "seed")
        for value in (-1, 0.0, False, "3", None)
    ),
    *(
        ({name: value}, rf"`{name}` must be in \[0, 1\), got {value}\.")
        for name in ("worker_momentum", "average")
        for value in (1.0, -0.1, NAN, INF, None, True, "0.5")
    ),
    ({"worker_momentum": 0.5},
     r"`partition` must give every row its own client for worker momentum, got Shuffled\(\)\."),
    ({"rule": KRUM, "n_rows": 6},
     r"`rows` must have at least 7 rows \(needed by Krum\(n_bad=2\)\), got 6\."),
    ({"rule": ZENO}, COMPARES.format("Zeno")),
    ({"rule": TRUSTED}, COMPARES.format("TrustedReference")),
    ({"n_trusted": 6000},
     r"`n_trusted` must leave some of the 6000 training samples to the rows, got 6000\."),
    ({"row_size": 188},
     r"`n_rows \* row_size` must be at most 6,000, the training samples of .*, got 6,016\."),
    ({"threat": attacked(n_bad=33)}, r"`n_bad` must be at most 32, the number there is, got 33\."),
]  # fmt: skip


def test_mistakes_are_refused() -> None:
    for given, message in MISTAKES:
        got = refusal(Config, **given)
        assert re.fullmatch(message, got), (given, got)


def corrupted(corruption: Any, whole_rows: bool = False, **adversaries: Any) -> Threat:
    adversaries = adversaries or {"n_bad": 3}
    return Threat(
        corruption=corruption, adversaries=Adversaries(**adversaries), whole_rows=whole_rows
    )


IMPOSSIBLE: dict[str, tuple[Threat, str]] = {
    "no honest row, so no loss": (attacked(bad_fraction=1.0),
     r"`adversaries` must leave at least one row honest, got 32 of 32 bad\."),
    "no honest row, all corrupted": (corrupted(Blur(), whole_rows=True, bad_fraction=1.0),
     r"`adversaries` must leave at least one row honest, .*"),
    "more bad samples than samples": (corrupted(Blur(), n_bad=513),
     r"`n_bad` must be at most 512, .*"),
    "more fixed samples than there are": (corrupted(Blur(), n_bad=6001, redrawn=False),
     r"`n_bad` must be at most 6000, .*"),
    "a label that is no class": (corrupted(WrongLabels(labels=10, n_classes=11)),
     r"`attack` must have n_classes=10, the number of classes of .*"),
    "a target that is no class": (corrupted(Backdoor(target=10)),
     r"`target` must be below 10, the number of classes of fashion-mnist-slice, got 10\."),
    "more classes than there are": (corrupted(WrongLabels(labels="random", n_classes=11)),
     r"`attack` must have n_classes=10, .*"),
    "fewer classes than there are": (corrupted(WrongLabels(n_classes=9)),
     r"`attack` must have n_classes=10, .*"),
}  # fmt: skip


def test_impossible_threats_are_refused_before_the_run() -> None:
    for case, (threat, message) in IMPOSSIBLE.items():
        got = refusal(Config, threat=threat)
        assert re.fullmatch(message, got), (case, got)
    Config(threat=corrupted(Blur(), n_bad=512))
    Config(threat=corrupted(Blur(), n_bad=6000, redrawn=False))


THREAT_MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"attack": Blur()}, r"`attack` must be an Attack, got Blur\."),
    ({"corruption": ScaledFlip()}, r"`corruption` must be a Corruption, got ScaledFlip\."),
    ({"adversaries": 0.4}, r"`adversaries` must be an Adversaries, got float\."),
    ({"whole_rows": 1, "corruption": Blur()}, r"`whole_rows` must be True or False, got 1\."),
    ({"whole_rows": True, "attack": ScaledFlip()},
     r"`whole_rows` must be False without a corruption, got True\."),
    ({"repeats": 1, "attack": ScaledFlip()}, r"`repeats` must be True or False, got 1\."),
    ({"repeats": True}, r"`repeats` must be False without an attack or a corruption, got True\."),
    ({"adversaries": Adversaries(n_bad=3)},
     r"`adversaries` must have no bad rows without an attack or a corruption, got Adv.*\."),
]  # fmt: skip


def test_mistakes_in_threats_are_refused() -> None:
    for given, message in THREAT_MISTAKES:
        got = refusal(Threat, **given)
        assert re.fullmatch(message, got), (given, got)


JSON_MISTAKES: list[tuple[Any, str]] = [
    ({"n_row": 3}, r"`config field` must be one of .*, got 'n_row' \(did you mean 'n_rows'\?\)\."),
    ([], r"`config` must be a mapping, got list\."),
    (None, r"`config` must be a mapping, got NoneType\."),
    ({"threat": None}, r"`threat` must be a mapping, got NoneType\."),
    ({"threat": {"atack": None}},
     r"`threat field` must be one of .*, got 'atack' \(did you mean 'attack'\?\)\."),
    ({"threat": {"adversaries": {"bad": 3}}}, r"`adversaries field` must be one of .*"),
    ({"threat": {"adversaries": {}}}, r"Exactly one of .*"),
    ({"threat": {"adversaries": None}}, r"`adversaries` must be a mapping, got NoneType\."),
    ({"threat": {"attack": "mimic"}}, r"`attack` must be a mapping with a 'name', got 'mimic'\."),
    ({"threat": {"attack": {"name": "mimik"}}},
     r"`attack` must be one of .* \(did you mean 'mimic'\?\)\."),
    ({"threat": {"corruption": {"name": "blur", "sigma": -1}}}, r"`sigma` must .*"),
    ({"rule": {"name": "krum"}}, r"`krum` must be given n_bad or bad_fraction, .*"),
    ({"rule": {"name": "krum", "n_bad": "many"}}, r"`n_bad` must .*"),
    ({"rule": {"name": "bucketing", "bucket_size": 2, "rule": 3}}, r"`rule` must .*"),
    ({"memory": {"name": "robust"}}, r"`memory` must be one of mean, none, row, got 'robust'\."),
    ({"rule": "krum"}, r"`rule` must be a mapping with a 'name', got 'krum'\."),
    ({"rule": None}, r"`rule` must be an Aggregator, got NoneType\."),
    ({"optimizer": {"name": "sgd", "lr": 0}}, r"`lr` must be a finite number above 0, got 0\."),
    ({"schedule": {"name": "cosine-restarts", "period": 0}}, r"`period` must .*"),
    ({"partition": {"name": "dirichlet", "alpha": 0}},
     r"`alpha` must be a finite number above 0, got 0\."),
    ({"seed": "0"}, r"`seed` must .*"),
    ({"data": []}, r"`data` must be one of .*"),
]  # fmt: skip


def test_mistakes_in_json_are_refused() -> None:
    for data, message in JSON_MISTAKES:
        got = refusal(config_from_json, data)
        assert re.fullmatch(message, got), (data, got)


def test_missing_fields_have_their_default() -> None:
    assert config_from_json({}) == Config()
    assert config_from_json({"seed": 3, "threat": {}}) == Config(seed=3)


BAD_PARTS: list[tuple[type, dict[str, Any]]] = [
    (Sgd, {"lr": -1}),
    (Sgd, {"momentum": 1.0}),
    (Sgd, {"nesterov": True}),
    (Sgd, {"nesterov": 1}),
    (Sgd, {"weight_decay": -1}),
    (Adam, {"lr": math.nan}),
    (Adam, {"weight_decay": math.inf}),
    (Exponential, {"decay": 0}),
    (Exponential, {"decay": 1.1}),
    (CosineRestarts, {"growth": 0}),
    (CosineRestarts, {"period": 1.5}),
    (Shards, {"n_shards": 0}),
    (Dirichlet, {"alpha": math.inf}),
]


def test_parts_refuse_their_own_mistakes() -> None:
    for kind, given in BAD_PARTS:
        got = refusal(kind, **given)
        assert re.fullmatch(r"`\w+` must .*, got .*\.", got), (kind, given, got)


def test_defaults_and_properties() -> None:
    config = Config()
    assert (config.batch_size, config.needs_trust, config.partition) == (512, False, Shuffled())
    assert replace(config, rule=ZENO, n_trusted=1).needs_trust
    clipping = rules.parse("centered-clipping(radius=1.0)")
    assert not replace(config, rule=clipping).needs_trust


def test_a_memory_decides_the_order_of_the_step() -> None:
    block = TopNorm(fraction=0.5)
    step = Config(rule=KRUM, selector=block).step()
    assert isinstance(step, RobustStep)
    assert (step.rule, step.selector) == (KRUM, block)
    first = Config(rule=KRUM, selector=block, memory=MeanMemory()).step()
    assert isinstance(first, SelectFirstStep)
    assert (first.rule, first.selector, first.memory) == (KRUM, block, MeanMemory())


@pytest.mark.parametrize("repeats", [False, True])
def test_noise_repeats_where_it_should(repeats: bool) -> None:
    """As published: the same rows with the same noise at every step."""
    adversaries = Adversaries(n_bad=1, redrawn=False)
    of_rows = Threat(attack=NoisyRows(), adversaries=adversaries, repeats=repeats)
    of_images = Threat(corruption=GaussianNoise(), adversaries=adversaries, repeats=repeats)
    images, labels = torch.zeros(2, 1, 4, 4), torch.tensor([1, 2])
    sent, seen = [], []
    for step in range(2):
        rows, bad = DenseRows(torch.zeros(3, 5)), of_rows.bad_rows(3, seed=0, step=step)
        of_rows.apply_attack(rows, bad, seed=0, step=step)
        sent.append(rows.matrix())
        mask = torch.tensor([True, False])
        seen.append(of_images.corrupt(images, labels, mask, seed=0, step=step)[0])
    assert bool(sent[0].any())
    assert torch.equal(*sent) == torch.equal(*seen) == repeats
