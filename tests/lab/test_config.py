"""Configurations: JSON and back, a hash that sees every field, and a sentence for every mistake."""

import json
import math
import re
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from holdfast.errors import UnknownNameError
from holdfast.geometry import DenseRows
from holdfast.lab.config import (
    Config,
    Threat,
    all_rules,
    config_from_json,
    config_to_json,
    format_rule,
    format_threat,
    hash_of,
    parse_rule,
    parse_threat,
    rule_names,
    run_name,
    threat_names,
)
from holdfast.lab.models import models
from holdfast.lab.optimizers import Adam, Sgd, optimizers
from holdfast.lab.partitions import Dirichlet, Shards, Shuffled, partitions
from holdfast.lab.records import config_hash
from holdfast.lab.schedules import CosineRestarts, Exponential, schedules
from holdfast.memory import NoMemory, RobustMemory, RowMemory, memories
from holdfast.registry import Registry
from holdfast.robust_step import presets
from holdfast.selectors import Cyclic, NormSampling, TopNorm, Uniform, selectors
from holdfast.threats import (
    AdditiveNoise,
    Adversaries,
    Backdoor,
    BitFlips,
    Blur,
    GaussianNoise,
    LabelFlip,
    RandomLabels,
    ScaledFlip,
    TargetLabel,
    attacks,
    corruptions,
)
from tests.aggregators.cases import CASES
from tests.lab.cases import RUNS, TINY
from tests.threats.cases import ATTACKS, CORRUPTIONS

RULES = sorted(
    {case.text for case in CASES}
    | {"sketched-geometric-median", "sketched-geometric-median(fraction=0.5, tile=2)"}
)
SELECTORS = ["everything", "norm-sampling(fraction=0.1)", "top-norm(count=5)", "uniform(fraction=0.3, tile=4)", "cyclic(count=2)",
             "norm-sampling(fraction=0.5, tile='row', capped=False)"]  # fmt: skip
MEMORIES = ["none", "mean", "mean(units='gradient')", "robust", "robust(units='gradient')", "row"]
OPTIMIZERS = [
    "sgd",
    "sgd(lr=1)",
    "sgd(momentum=0.9, nesterov=True, weight_decay=1e-5)",
    "adam",
    "adam(lr=1e-4, weight_decay=0.1)",
]
SCHEDULES = ["constant", "cosine", "cosine-restarts(period=3, growth=1)", "exponential(decay=0.9)"]
PARTITIONS = ["shuffled", "shards(n_shards=30)", "dirichlet(alpha=0.1)"]


@pytest.mark.parametrize(
    ("registry", "texts"),
    [(all_rules, RULES), (selectors, SELECTORS), (memories, MEMORIES), (optimizers, OPTIMIZERS), (schedules, SCHEDULES), (partitions, PARTITIONS)],
    ids=["rules", "selectors", "memories", "optimizers", "schedules", "partitions"],
)  # fmt: skip
def test_every_name_is_among_the_samples(registry: Registry[Any], texts: list[str]) -> None:
    assert {re.split(r"[\s(|]", text)[0] for text in texts} == set(registry.names)


@st.composite
def threats(draw: st.DrawFn) -> Threat:
    attack = draw(st.none() | st.sampled_from(ATTACKS))
    corruption = draw(st.none() | st.sampled_from(CORRUPTIONS))
    share = (
        {"bad_fraction": draw(st.sampled_from([0.0, 0.2, 0.4]))}
        if draw(st.booleans())
        else {"n_bad": draw(st.integers(0, 7))}
    )
    if attack is None and corruption is None:
        return Threat()
    return Threat(
        attack=None if attack is None else attack.attack,
        corruption=None if corruption is None else corruption.corruption,
        adversaries=Adversaries(**share, redrawn=draw(st.booleans())),
        whole_rows=corruption is not None and draw(st.booleans()),
        repeats=draw(st.booleans()),
    )


def assert_says_why(error: ValueError) -> None:
    """Parts that do not fit together are refused by a sentence, too."""
    assert re.match(r"^`\w+` must .*, got .*\.$", str(error))


@st.composite
def configs(draw: st.DrawFn) -> Config:
    partition = partitions.parse(draw(st.sampled_from(PARTITIONS)))
    try:
        return Config(
            data=draw(
                st.sampled_from(["fashion-mnist-slice", "mnist", "fashion-mnist", "cifar-10"])
            ),
            model=draw(st.sampled_from(sorted(models))),
            partition=partition,
            n_rows=draw(st.integers(15, 60)),
            row_size=draw(st.integers(1, 64)),
            aggregator=all_rules.parse(draw(st.sampled_from(RULES))),
            selector=selectors.parse(draw(st.sampled_from(SELECTORS))),
            memory=memories.parse(draw(st.sampled_from(MEMORIES))),
            worker_momentum=draw(st.floats(0, 0.99)) if partition.is_fixed else 0.0,
            threat=draw(threats()),
            optimizer=optimizers.parse(draw(st.sampled_from(OPTIMIZERS))),
            schedule=schedules.parse(draw(st.sampled_from(SCHEDULES))),
            n_steps=draw(st.integers(1, 10**6)),
            n_trusted=draw(st.integers(1, 100)),
            evaluate_every=draw(st.integers(1, 1000)),
            rows_every=draw(st.integers(1, 1000)),
            seed=draw(st.integers(0, 2**70)),
        )
    except ValueError as error:
        assert_says_why(error)
        assume(False)
        raise


@given(config=configs())
@settings(max_examples=150)
def test_json_and_back(config: Config) -> None:
    again = config_from_json(json.loads(json.dumps(config_to_json(config))))
    assert again == config
    assert hash_of(again) == hash_of(config)
    assert set(config_to_json(config)) == {entry.name for entry in fields(Config)}


@given(one=configs(), other=configs())
def test_names_are_safe_and_distinct(one: Config, other: Config) -> None:
    assert_safe(run_name(one))
    assert (run_name(one) == run_name(other)) == (one == other)


def assert_safe(name: str) -> None:
    """Good as the name of a folder on every system, and as an argument of a command."""
    assert re.fullmatch(r"[a-z0-9][A-Za-z0-9._-]*[a-z0-9]", name)
    assert len(name.encode()) <= 200


def test_long_names_are_safe_and_say_what_they_are() -> None:
    for n_stages in range(1, 20):
        for n_bad in (1, 10, 100):
            rule = parse_rule(f"mixing(n_bad={n_bad}) | " * n_stages + "geometric-median")
            name = run_name(replace(TINY, n_rows=400, **rule))
            assert_safe(name)
            assert name.startswith("fashion-mnist-slice-logistic-regression-mixing")


def test_equal_configurations_have_equal_hashes() -> None:
    """A rate of 1 is one of 1.0: Python says that the configurations are equal, and so does the run's folder."""
    for whole, other in [
        (replace(TINY, optimizer=Sgd(lr=1)), replace(TINY, optimizer=Sgd(lr=1.0))),
        (replace(TINY, worker_momentum=0), replace(TINY, worker_momentum=0.0)),
        (
            replace(TINY, schedule=Exponential(decay=1)),
            replace(TINY, schedule=Exponential(decay=1.0)),
        ),
    ]:
        assert whole == other
        assert hash_of(whole) == hash_of(other)


FULL = Config(
    partition=Shards(n_shards=64),
    aggregator=all_rules.parse("bucketing(bucket_size=2) | geometric-median"),
    selector=NormSampling(fraction=0.5),
    memory=RobustMemory(),
    threat=Threat(
        attack=BitFlips(),
        corruption=Backdoor(),
        adversaries=Adversaries(bad_fraction=0.25),
        whole_rows=True,
    ),
    optimizer=Sgd(lr=0.01, momentum=0.9),
    schedule=CosineRestarts(),
    n_trusted=3,
    worker_momentum=0.5,
)
OTHERS: dict[str, Any] = {
    "data": "mnist",
    "model": "mlp",
    "partition": [Dirichlet(alpha=0.5), replace(FULL.partition, n_shards=96)],  # type: ignore[type-var]
    "n_rows": 64,
    "row_size": 17,
    "aggregator": [
        all_rules.parse("mean"),
        all_rules.parse("bucketing(bucket_size=3) | geometric-median"),
        all_rules.parse("bucketing(bucket_size=2) | geometric-median(tolerance=1e-7)"),
        all_rules.parse("bucketing(bucket_size=2) | geometric-median(max_steps=101)"),
    ],
    "selector": [
        Uniform(fraction=0.5),
        NormSampling(fraction=0.6),
        NormSampling(count=5),
        NormSampling(fraction=0.5, tile=3),
        NormSampling(fraction=0.5, capped=False),
    ],
    "memory": [RobustMemory(units="gradient"), RowMemory(), NoMemory()],
    "worker_momentum": [0.0, 0.6],
    "threat": [
        replace(FULL.threat, attack=None),
        replace(FULL.threat, attack=ScaledFlip()),
        replace(FULL.threat, attack=BitFlips(bits=(1, 2))),
        replace(FULL.threat, attack=BitFlips(fraction=0.5)),
        replace(FULL.threat, corruption=None, whole_rows=False),
        replace(FULL.threat, corruption=Backdoor(target=1)),
        replace(FULL.threat, corruption=Backdoor(size=4)),
        replace(FULL.threat, corruption=Backdoor(value=0.5)),
        replace(FULL.threat, whole_rows=False),
        replace(FULL.threat, adversaries=Adversaries(bad_fraction=0.26)),
        replace(FULL.threat, adversaries=Adversaries(n_bad=8)),
        replace(FULL.threat, adversaries=Adversaries(bad_fraction=0.25, redrawn=False)),
    ],
    "optimizer": [
        Adam(lr=0.01),
        Adam(lr=0.01, weight_decay=0.1),
        Sgd(lr=0.02, momentum=0.9),
        Sgd(lr=0.01, momentum=0.8),
        Sgd(lr=0.01, momentum=0.9, nesterov=True),
        Sgd(lr=0.01, momentum=0.9, weight_decay=1e-9),
    ],
    "schedule": [Exponential(), CosineRestarts(period=11), CosineRestarts(growth=3)],
    "n_steps": 601,
    "n_trusted": 4,
    "evaluate_every": 101,
    "rows_every": 11,
    "seed": 1,
}


def test_the_hash_changes_with_any_field() -> None:
    assert set(OTHERS) == {entry.name for entry in fields(Config)}
    changed = [
        replace(FULL, **{name: value})
        for name, values in OTHERS.items()
        for value in (values if isinstance(values, list) else [values])
    ]
    hashes = [hash_of(config) for config in (FULL, *changed)]
    assert len(set(hashes)) == len(hashes)
    assert len({run_name(config) for config in (FULL, *changed)}) == len(hashes)


def leaves(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to all plain values."""
    if isinstance(node, dict):
        return [found for key, value in node.items() for found in leaves(value, (*path, key))]
    return [path]


def test_the_hash_sees_every_value_of_the_json() -> None:
    data = config_to_json(FULL)
    seen = {hash_of(FULL)}
    for path in leaves(data):
        copy: Any = json.loads(json.dumps(data))
        inner = copy
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = "another"
        seen.add(config_hash(copy))
    assert len(seen) == 1 + len(leaves(data))


def test_every_dataclass_field_is_in_the_json() -> None:
    """Nothing that a part knows is missing from what the hash is made of."""

    def assert_described(part: Any, data: Any) -> None:
        for entry in fields(part):
            assert entry.name in data
            value = getattr(part, entry.name)
            if is_dataclass(value):
                assert_described(value, data[entry.name])

    for config in (FULL, *RUNS.values()):
        assert_described(config, config_to_json(config))


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"data": "fashion-mnist-slise"}, r"`data` must be one of .*, got 'fashion-mnist-slise' \(did you mean 'fashion-mnist-slice'\?\)\."),
    ({"data": None}, r"`data` must be one of .*, got None\."),
    ({"data": []}, r"`data` must be one of .*, got \[\]\."),
    ({"model": "resnet18"}, r"`model` must be one of .*, got 'resnet18' \(did you mean 'resnet-18'\?\)\."),
    ({"model": {}}, r"`model` must be one of .*, got \{\}\."),
    ({"partition": "shards"}, r"`partition` must be a Partition, got str\."),
    ({"aggregator": None}, r"`aggregator` must be an Aggregator, got NoneType\."),
    ({"selector": NoMemory()}, r"`selector` must be a Selector, got NoMemory\."),
    ({"memory": 3}, r"`memory` must be a Memory, got int\."),
    ({"threat": ScaledFlip()}, r"`threat` must be a Threat, got ScaledFlip\."),
    ({"optimizer": 0.1}, r"`optimizer` must be a OptimizerSpec, got float\."),
    ({"schedule": "cosine"}, r"`schedule` must be a Schedule, got str\."),
    *(
        ({name: value}, rf"`{name}` must be a whole number of at least 1, got {re.escape(str(value))}\.")
        for name in ("n_rows", "row_size", "n_steps", "evaluate_every", "rows_every")
        for value in (0, -1, 1.5, True, "3", None)
    ),
    *(
        ({name: value}, rf"`{name}` must be a whole number of at least 0, got {re.escape(str(value))}\.")
        for name in ("n_trusted", "seed")
        for value in (-1, 0.0, False, "3", None)
    ),
    *(
        ({"worker_momentum": value}, rf"`worker_momentum` must be in \[0, 1\), got {value}\.")
        for value in (1.0, -0.1, float("nan"), float("inf"), None, True, "0.5")
    ),
    ({"worker_momentum": 0.5}, r"`partition` must give every row its own client for worker momentum, got Shuffled\(\)\."),
    ({"aggregator": all_rules.parse("krum(n_bad=2)"), "n_rows": 6}, r"`rows` must have at least 7 rows \(needed by Krum\(n_bad=2\)\), got 6\."),
    ({"aggregator": all_rules.parse("zeno(n_bad=2)")}, r"`n_trusted` must be at least 1, because Zeno\(.*\) compares with trusted samples, got 0\."),
    ({"aggregator": all_rules.parse("trusted-reference")}, r"`n_trusted` must be at least 1, because TrustedReference\(\) .*, got 0\."),
    ({"selector": TopNorm(fraction=0.5), "memory": RobustMemory()}, r"`\w+` must .*"),
    ({"selector": Cyclic(fraction=0.5), "memory": RobustMemory(), "n_rows": 0}, r"`n_rows` must .*"),
    ({"threat": Threat(attack=ScaledFlip(), adversaries=Adversaries(n_bad=33))}, r"`n_bad` must be at most 32, the number there is, got 33\."),
]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "message"), MISTAKES, ids=[str(mistake[0])[:60] for mistake in MISTAKES]
)
def test_mistakes_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=rf"^{message}$"):
        Config(**given)


NOT_SEEN_BEFORE_THE_RUN: list[tuple[Threat, str]] = [
    (
        Threat(attack=ScaledFlip(), adversaries=Adversaries(bad_fraction=1.0)),
        "no honest row is left, so that no loss is",
    ),
    (
        Threat(corruption=Blur(), adversaries=Adversaries(bad_fraction=1.0), whole_rows=True),
        "the same for whole rows",
    ),
    (
        Threat(corruption=Blur(), adversaries=Adversaries(n_bad=513)),
        "more bad samples than samples",
    ),
    (
        Threat(corruption=TargetLabel(target=10), adversaries=Adversaries(n_bad=3)),
        "a class that is none",
    ),
    (
        Threat(corruption=Backdoor(target=10), adversaries=Adversaries(n_bad=3)),
        "a class that is none",
    ),
    (
        Threat(corruption=RandomLabels(n_classes=11), adversaries=Adversaries(n_bad=3)),
        "classes that are none",
    ),
    (
        Threat(corruption=LabelFlip(n_classes=9), adversaries=Adversaries(n_bad=3)),
        "fewer classes than there are",
    ),
]


@pytest.mark.parametrize(
    ("threat", "reason"),
    NOT_SEEN_BEFORE_THE_RUN,
    ids=[str(case[0])[:90] for case in NOT_SEEN_BEFORE_THE_RUN],
)
def test_threats_that_cannot_be_are_refused_before_the_run(threat: Threat, reason: str) -> None:
    with pytest.raises(ValueError, match=r"^`\w+` must "):
        Config(threat=threat)


THREAT_MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"attack": Blur()}, r"`attack` must be an Attack, got Blur\."),
    ({"corruption": ScaledFlip()}, r"`corruption` must be a Corruption, got ScaledFlip\."),
    ({"adversaries": 0.4}, r"`adversaries` must be an Adversaries, got float\."),
    ({"whole_rows": 1, "corruption": Blur()}, r"`whole_rows` must be True or False, got 1\."),
    (
        {"whole_rows": True, "attack": ScaledFlip()},
        r"`whole_rows` must be False without a corruption, got True\.",
    ),
    ({"repeats": 1, "attack": ScaledFlip()}, r"`repeats` must be True or False, got 1\."),
    ({"repeats": True}, r"`repeats` must be False without an attack or a corruption, got True\."),
    (
        {"adversaries": Adversaries(n_bad=3)},
        r"`adversaries` must have nobody bad without an attack or a corruption, got Adversaries\(.*\)\.",
    ),
]


@pytest.mark.parametrize(
    ("given", "message"), THREAT_MISTAKES, ids=[str(mistake[0]) for mistake in THREAT_MISTAKES]
)
def test_mistakes_in_threats_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=rf"^{message}$"):
        Threat(**given)


JSON_MISTAKES: list[tuple[Any, str]] = [
    ({"n_row": 3}, r"`config field` must be one of .*, got 'n_row' \(did you mean 'n_rows'\?\)\."),
    ([], r"`config` must be a mapping, got list\."),
    (None, r"`config` must be a mapping, got NoneType\."),
    ({"threat": None}, r"`threat` must be a mapping, got NoneType\."),
    (
        {"threat": {"atack": None}},
        r"`threat field` must be one of .*, got 'atack' \(did you mean 'attack'\?\)\.",
    ),
    ({"threat": {"adversaries": {"bad": 3}}}, r"`adversaries field` must be one of .*"),
    ({"threat": {"adversaries": {}}}, r"Exactly one of .*"),
    ({"threat": {"adversaries": None}}, r"`adversaries` must be a mapping, got NoneType\."),
    ({"threat": {"attack": "mimic"}}, r"`attack` must be a mapping with a 'name', got 'mimic'\."),
    (
        {"threat": {"attack": {"name": "mimik"}}},
        r"`attack` must be one of .* \(did you mean 'mimic'\?\)\.",
    ),
    ({"threat": {"corruption": {"name": "blur", "sigma": -1}}}, r"`sigma` must .*"),
    ({"aggregator": {"name": "krum"}}, r"`krum` must be given n_bad or bad_fraction, .*"),
    ({"aggregator": {"name": "krum", "n_bad": "many"}}, r"`n_bad` must .*"),
    (
        {"aggregator": {"name": "bucketing", "bucket_size": 2, "aggregator": "mean"}},
        r"`aggregator` must .*",
    ),
    ({"aggregator": None}, r"`rule` must be a mapping with a 'name', got None\."),
    ({"optimizer": {"name": "sgd", "lr": 0}}, r"`lr` must be a finite number above 0, got 0\."),
    ({"schedule": {"name": "cosine-restarts", "period": 0}}, r"`period` must .*"),
    (
        {"partition": {"name": "dirichlet", "alpha": 0}},
        r"`alpha` must be a finite number above 0, got 0\.",
    ),
    ({"seed": "0"}, r"`seed` must .*"),
    ({"data": []}, r"`data` must be one of .*"),
]


@pytest.mark.parametrize(
    ("data", "message"), JSON_MISTAKES, ids=[str(mistake[0])[:60] for mistake in JSON_MISTAKES]
)
def test_mistakes_in_json_are_refused(data: Any, message: str) -> None:
    with pytest.raises(ValueError, match=rf"^{message}$"):
        config_from_json(data)


def test_fields_that_are_missing_have_their_default() -> None:
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


@pytest.mark.parametrize(("kind", "given"), BAD_PARTS, ids=str)
def test_parts_refuse_their_own_mistakes(kind: type, given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^`\w+` must .*, got .*\.$"):
        kind(**given)


@pytest.mark.parametrize("name", rule_names())
def test_every_rule_has_a_name(name: str) -> None:
    arguments = {"n_bad=1": ["bulyan", "krum", "mean-around-median", "minimum-diameter", "multi-krum", "spectral-filter", "trimmed-mean", "zeno"],
                 "radius=1.0": ["centered-clipping"], "group_size=3": ["majority-vote"], "bad_fraction=0.2": ["norm-trim", "norm-filter"],
                 "sigma=1.0": ["resilience-filter"]}  # fmt: skip
    wraps = {
        "bucketing": "bucketing(bucket_size=2) | mean",
        "clipping": "clipping(radius=1.0) | mean",
        "mixing": "mixing(n_bad=1) | mean",
    }
    text = wraps.get(
        name,
        next((f"{name}({given})" for given, names in arguments.items() if name in names), name),
    )
    parts = parse_rule(text)
    config = replace(TINY, n_rows=30, n_trusted=5, **parts)
    formatted = format_rule(config.aggregator, config.selector, config.memory)
    assert replace(config, **parse_rule(formatted)) == config
    assert formatted == text


def test_presets_and_their_parts() -> None:
    assert set(presets) <= set(rule_names())
    parts = parse_rule("bgmd(fraction=0.2)", memory="row", selector="top-norm(count=3)")
    assert (parts["memory"], parts["selector"]) == (RowMemory(), TopNorm(count=3))
    assert parse_rule("bgmd", is_exact=False)["memory"] == RobustMemory(units="gradient")
    assert parse_rule("bgmd(units='parameter')", is_exact=False)["memory"] == RobustMemory()
    assert parse_rule("mean", memory="row", selector="uniform(fraction=0.5)", is_exact=False)[
        "memory"
    ] == RowMemory(units="gradient")
    assert (
        parse_rule("mean", memory="row(units='parameter')", is_exact=False)["memory"] == RowMemory()
    )
    assert parse_rule("mean", is_exact=False) == {"aggregator": all_rules.parse("mean")}
    for text, mistake in (("bgmb", "did you mean 'bgmd'"), ("krumm(n_bad=3)", "did you mean 'krum'"), ("mean | krumm(n_bad=3)", "did you mean 'krum'")):  # fmt: skip
        with pytest.raises(UnknownNameError, match=mistake):
            parse_rule(text)
    for text in (
        "",
        "krum",
        "krum(2)",
        "bgmd(fraction=7)",
        "bgmd(blocks=3)",
        "mean | krum(n_bad=1)",
        "bgmd | mean",
    ):
        with pytest.raises(ValueError, match=r"^`[\w-]+` must "):
            parse_rule(text)


@pytest.mark.parametrize("name", threat_names())
def test_every_threat_has_a_name(name: str) -> None:
    threat = parse_threat(name, Adversaries(n_bad=2))
    assert (threat.attack is None) != (threat.corruption is None)
    assert parse_threat(format_threat(threat), Adversaries(n_bad=2)) == threat


def test_threats_by_name() -> None:
    assert set(attacks.names) | set(corruptions.names) <= set(threat_names())
    assert parse_threat("bit-flip", Adversaries(n_bad=2)).attack == ScaledFlip()
    assert parse_threat(
        "impulse(fraction=0.1)", Adversaries(n_bad=2)
    ).corruption == corruptions.parse("salt-and-pepper(fraction=0.1)")
    assert parse_threat("blur", Adversaries(n_bad=2), whole_rows=True).whole_rows
    assert parse_threat("label-flip(n_classes=4)", Adversaries(n_bad=2)).corruption == LabelFlip(
        n_classes=4
    )
    assert format_threat(Threat()) == "none"
    assert (
        format_threat(
            Threat(attack=ScaledFlip(), corruption=Blur(), adversaries=Adversaries(n_bad=1))
        )
        == "scaled-flip + blur"
    )
    with pytest.raises(
        UnknownNameError,
        match=r"^`attack` must be one of .*, got 'scaled-flp' \(did you mean 'scaled-flip'\?\)\.$",
    ):
        parse_threat("scaled-flp", Adversaries(n_bad=2))
    with pytest.raises(
        ValueError, match=r"^`whole_rows` must be False without a corruption, got True\.$"
    ):
        parse_threat("mimic", Adversaries(n_bad=2), whole_rows=True)


def test_defaults_and_properties() -> None:
    config = Config()
    assert (config.batch_size, config.needs_trust, config.partition) == (512, False, Shuffled())
    assert replace(config, aggregator=all_rules.parse("zeno(n_bad=2)"), n_trusted=1).needs_trust
    assert not replace(
        config, aggregator=all_rules.parse("centered-clipping(radius=1.0)")
    ).needs_trust
    assert config.step().aggregator == config.aggregator


@pytest.mark.parametrize("repeats", [False, True])
def test_noise_repeats_where_it_should(repeats: bool) -> None:
    """As published: the same rows with the same noise at every step."""
    adversaries = Adversaries(n_bad=1, redrawn=False)
    of_rows = Threat(attack=AdditiveNoise(), adversaries=adversaries, repeats=repeats)
    of_images = Threat(corruption=GaussianNoise(), adversaries=adversaries, repeats=repeats)
    sent, seen = [], []
    for step in range(2):
        rows = DenseRows(torch.zeros(3, 5))
        of_rows.falsify(rows, of_rows.bad_rows(3, seed=0, step=step), seed=0, step=step)
        sent.append(rows.matrix())
        mask = torch.tensor([True, False])
        seen.append(
            of_images.corrupt(
                torch.zeros(2, 1, 4, 4), torch.tensor([1, 2]), mask, seed=0, step=step
            )[0]
        )
    assert bool(sent[0].any())
    assert torch.equal(*sent) == torch.equal(*seen) == repeats
