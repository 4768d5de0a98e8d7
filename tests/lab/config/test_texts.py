"""JSON of configurations and back, a hash that sees every field, and names of rules and threats."""

import json
import re
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from holdfast.aggregators import Sketched, rules
from holdfast.errors import UnknownNameError
from holdfast.lab.config import (
    Config,
    Threat,
    Workers,
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
from holdfast.lab.partitions import Dirichlet, Shards, partitions
from holdfast.lab.records import config_hash
from holdfast.lab.schedules import CosineRestarts, Exponential, schedules
from holdfast.lab.schemes import Exchange, schemes
from holdfast.registry import Registry
from holdfast.robust_step import MeanMemory, NoMemory, RowMemory, memories, presets
from holdfast.selectors import NormSampling, TopNorm, Uniform, selectors
from holdfast.threats import (
    Adversaries,
    Backdoor,
    Blur,
    IeeeBitFlips,
    Late,
    ScaledFlip,
    WrongLabels,
    attacks,
    corruptions,
)
from tests.aggregators.cases import CASES, shortest_text
from tests.lab.cases import RUNS, TINY
from tests.threats.cases import ATTACKS, CORRUPTIONS

RULES = sorted(
    {case.text for case in CASES}
    | {"sketched | geometric-median", "sketched(fraction=0.5, tile=2) | geometric-median"}
)
SELECTORS = [
    "everything",
    "norm-sampling(fraction=0.1)",
    "norm-sampling(fraction=0.5, tile='row', capped=False)",
    "top-norm(count=5)",
    "uniform(fraction=0.3, tile=4)",
    "cyclic(count=2)",
]
MEMORIES = ["none", "mean", "mean(units='gradient')", "row", "row(units='gradient')"]
OPTIMIZERS = [
    "sgd",
    "sgd(lr=1)",
    "sgd(momentum=0.9, nesterov=True, weight_decay=1e-5)",
    "adam",
    "adam(lr=1e-4, weight_decay=0.1)",
    "adamw",
    "adamw(lr=1e-4, weight_decay=0.1)",
]
SCHEMES = [
    "everything",
    "exchange",
    "exchange(send=0.1, tile=16, min_wait=2, max_wait=30, report_every=None, wire='int8')",
    "exchange(report_every=3, beta=0.9)",
    "rosdhb(send=0.1, momentum=0.99)",
    "byz-ef21(send=0.1, momentum=0.0)",
    "norm-filtered(send=0.1)",
    "scatter-mean(send=0.1)",
]
SCHEDULES = ["constant", "cosine", "cosine-restarts(period=3, growth=1)", "exponential(decay=0.9)"]
PARTITIONS = ["shuffled", "shards(n_shards=30)", "dirichlet(alpha=0.1)"]


def test_every_name_is_among_the_samples() -> None:
    samples: list[tuple[Registry[Any], list[str]]] = [
        (rules, RULES),
        (selectors, SELECTORS),
        (memories, MEMORIES),
        (optimizers, OPTIMIZERS),
        (schedules, SCHEDULES),
        (partitions, PARTITIONS),
        (schemes, SCHEMES),
    ]
    for registry, texts in samples:
        assert {re.split(r"[\s(|]", text)[0] for text in texts} == set(registry.names), texts


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


@st.composite
def workers(draw: st.DrawFn) -> Workers:
    return Workers(
        scheme=schemes.parse(draw(st.sampled_from(SCHEMES))),
        local_steps=draw(st.none() | st.integers(1, 9)),
        outer_lr=draw(st.sampled_from([0.5, 1.0])),
        outer_momentum=draw(st.sampled_from([0.0, 0.9])),
        absent=draw(st.sampled_from([0.0, 0.1])),
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
            rule=rules.parse(draw(st.sampled_from(RULES))),
            selector=selectors.parse(draw(st.sampled_from(SELECTORS))),
            memory=draw(st.none() | st.sampled_from(MEMORIES).map(memories.parse)),
            worker_momentum=draw(st.floats(0, 0.99)) if partition.is_fixed else 0.0,
            threat=draw(threats()),
            optimizer=optimizers.parse(draw(st.sampled_from(OPTIMIZERS))),
            schedule=schedules.parse(draw(st.sampled_from(SCHEDULES))),
            average=draw(st.sampled_from([0.0, 0.98])),
            n_steps=draw(st.integers(1, 10**6)),
            n_trusted=draw(st.integers(1, 100)),
            evaluate_every=draw(st.integers(1, 1000)),
            rows_every=draw(st.integers(1, 1000)),
            seed=draw(st.integers(0, 2**70)),
            workers=draw(st.none() | workers()),
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
    left_out = {name for name in ("own_data", "workers", "average") if not getattr(config, name)}
    assert set(config_to_json(config)) == {entry.name for entry in fields(Config)} - left_out


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
    """A rate of 1 equals a rate of 1.0, in Python and in the name of the folder."""
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
    rule=rules.parse("bucketing(bucket_size=2) | geometric-median"),
    selector=NormSampling(fraction=0.5),
    memory=MeanMemory(),
    threat=Threat(
        attack=IeeeBitFlips(),
        corruption=Backdoor(),
        adversaries=Adversaries(bad_fraction=0.25),
        whole_rows=True,
    ),
    optimizer=Sgd(lr=0.01, momentum=0.9),
    schedule=CosineRestarts(),
    n_trusted=3,
    worker_momentum=0.5,
    average=0.5,
)
OTHERS: dict[str, Any] = {
    "data": "mnist",
    "model": "mlp",
    "partition": [Dirichlet(alpha=0.5), Shards(n_shards=96)],
    "n_rows": 64,
    "row_size": 17,
    "rule": [
        rules.parse("mean"),
        rules.parse("bucketing(bucket_size=3) | geometric-median"),
        rules.parse("bucketing(bucket_size=2) | geometric-median(tolerance=1e-7)"),
        rules.parse("bucketing(bucket_size=2) | geometric-median(max_steps=101)"),
    ],
    "selector": [
        Uniform(fraction=0.5),
        NormSampling(fraction=0.6),
        NormSampling(count=5),
        NormSampling(fraction=0.5, tile=3),
        NormSampling(fraction=0.5, capped=False),
    ],
    "memory": [MeanMemory(units="gradient"), RowMemory(), NoMemory(), None],
    "worker_momentum": [0.0, 0.6],
    "average": [0.0, 0.9],
    "threat": [
        replace(FULL.threat, attack=None),
        replace(FULL.threat, attack=ScaledFlip()),
        replace(FULL.threat, attack=IeeeBitFlips(bits=(1, 2))),
        replace(FULL.threat, attack=IeeeBitFlips(fraction=0.5)),
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
    assert set(OTHERS) | {"workers", "own_data"} == {entry.name for entry in fields(Config)}
    changed = [
        replace(FULL, **{name: value})
        for name, values in OTHERS.items()
        for value in (values if isinstance(values, list) else [values])
    ]
    hashes = [hash_of(config) for config in (FULL, *changed)]
    assert len(set(hashes)) == len(hashes)
    assert len({run_name(config) for config in (FULL, *changed)}) == len(hashes)


def test_the_hash_changes_with_any_field_of_the_workers() -> None:
    exchange = Workers(scheme=Exchange())
    others = [
        *(replace(exchange, scheme=schemes.parse(text)) for text in SCHEMES if text != "exchange"),
        replace(exchange, local_steps=1),
        replace(exchange, outer_lr=0.5),
        replace(exchange, outer_momentum=0.5),
        replace(exchange, absent=0.1),
        None,
    ]
    plain = replace(TINY, optimizer=Sgd(lr=0.05), workers=exchange)
    configs = [plain, *(replace(plain, workers=other) for other in others)]
    assert len({hash_of(config) for config in configs}) == len(configs)
    assert len({run_name(config) for config in configs}) == len(configs)


def test_configurations_without_workers_have_the_hash_that_they_had_before_there_were_any() -> None:
    assert hash_of(Config()).startswith("b44e1793")
    assert "workers" not in config_to_json(Config())


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
            value = getattr(part, entry.name)
            optional = ("workers", "lie", "own_data", "average")
            assert entry.name in data or (not value and entry.name in optional)
            if is_dataclass(value):
                assert_described(value, data[entry.name])

    for config in (FULL, *RUNS.values()):
        assert_described(config, config_to_json(config))


def test_every_rule_has_a_name() -> None:
    for name in rule_names():
        text = shortest_text(name) if name in rules else name
        config = replace(TINY, n_rows=30, n_trusted=5, **parse_rule(text))
        formatted = format_rule(config.rule, config.selector, config.memory)
        assert replace(config, **parse_rule(formatted)) == config, name
        assert formatted == text


def test_presets_and_their_parts() -> None:
    assert set(presets) <= set(rule_names())
    parts = parse_rule("bgmd(fraction=0.2)", memory="row", selector="top-norm(count=3)")
    assert (parts["memory"], parts["selector"]) == (RowMemory(), TopNorm(count=3))
    assert "memory" not in parse_rule("bgmd", is_exact=False)
    assert parse_rule("bgmd-paper", is_exact=False)["memory"] == MeanMemory(units="gradient")
    exact = parse_rule("bgmd-paper(units='parameter')", is_exact=False)
    assert exact["memory"] == MeanMemory()
    assert parse_rule("mean", memory="row", selector="uniform(fraction=0.5)", is_exact=False)[
        "memory"
    ] == RowMemory(units="gradient")
    assert (
        parse_rule("mean", memory="row(units='parameter')", is_exact=False)["memory"] == RowMemory()
    )
    assert parse_rule("mean", is_exact=False) == {"rule": rules.parse("mean")}
    inner = parse_rule("bgmd(rule='sketched(fraction=0.5) | krum(n_bad=1)')")["rule"]
    assert inner == Sketched(fraction=0.5, rule=rules.parse("krum(n_bad=1)"))
    for text, near in (
        ("bgmb", "bgmd"),
        ("krumm(n_bad=3)", "krum"),
        ("mean | krumm(n_bad=3)", "krum"),
    ):
        with pytest.raises(UnknownNameError, match=f"did you mean '{near}'"):
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


def test_every_threat_has_a_name() -> None:
    adversaries = Adversaries(n_bad=2)
    assert threat_names() == sorted([*attacks.names, *corruptions.names])
    assert len(set(threat_names())) == len(threat_names())
    alone = [name for name in threat_names() if name != "late"]  # which wraps another one
    for text in (*alone, *map(str, ATTACKS), *map(str, CORRUPTIONS)):
        threat = parse_threat(text, adversaries)
        assert (threat.attack is None) != (threat.corruption is None), text
        assert parse_threat(format_threat(threat), adversaries) == threat, text


def test_threats_by_name() -> None:
    adversaries = Adversaries(n_bad=2)
    assert parse_threat("scaled-flip", adversaries).attack == ScaledFlip()
    late = parse_threat("late(start=9) | scaled-flip(factor=5.0)", adversaries)
    assert late.attack == Late(start=9, attack=ScaledFlip(factor=5.0))
    assert format_threat(late) == "late(start=9) | scaled-flip(factor=5.0)"
    assert parse_threat("blur", adversaries, whole_rows=True).whole_rows
    wrong = parse_threat("wrong-labels(n_classes=4)", adversaries).corruption
    assert wrong == WrongLabels(n_classes=4)
    assert format_threat(Threat()) == "none"
    both = Threat(attack=ScaledFlip(), corruption=Blur(), adversaries=adversaries)
    assert format_threat(both) == "scaled-flip + blur"
    for unknown in ("bit-flip", "additive", "impulse", "scaled-flp"):
        with pytest.raises(
            UnknownNameError, match=rf"^`attack` must be one of .*, got '{unknown}'"
        ):
            parse_threat(unknown, adversaries)
    with pytest.raises(UnknownNameError, match=r"\(did you mean 'scaled-flip'\?\)\.$"):
        parse_threat("scaled-flp", adversaries)
    alone = r"^`whole_rows` must be False without a corruption, got True\.$"
    with pytest.raises(ValueError, match=alone):
        parse_threat("mimic", adversaries, whole_rows=True)
