"""Contracts of all attacks and all corruptions."""

import json
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from holdfast.registry import Registry
from holdfast.seeds import stream
from holdfast.testing import check_attack
from holdfast.threats import Attack, Corruption, Rule, attacks, corruptions
from tests.threats.cases import (
    ATTACKS,
    CORRUPTIONS,
    DTYPES,
    FEATURES,
    LABELS,
    Case,
    batch,
    some_bad,
)

HUDDLES = [
    "huddle", "huddle(direction='std')", "huddle(direction='first-layer')",
    "huddle(direction='class')", "huddle(direction='true-gradient')",
    "huddle(direction='wrong-labels')", "huddle(direction='drift')",
]  # fmt: skip
LATE = "late(start=0) | huddle(direction='std')"
OPTIMIZED = [*HUDDLES, "inner-product(factor='optimized')", "little-is-enough(z='optimized')"]
ONE = (torch.float32,)
"""For searches against several rules; against the default rule all dtypes are tested."""

every_attack = pytest.mark.parametrize("case", ATTACKS, ids=str)
every_corruption = pytest.mark.parametrize("case", CORRUPTIONS, ids=str)


def same(a: Tensor, b: Tensor) -> bool:
    """Equal, where NaN equals NaN."""
    return (
        a.dtype == b.dtype
        and a.shape == b.shape
        and bool(((a == b) | (a.isnan() & b.isnan())).all())
    )


def test_every_threat_has_a_case() -> None:
    assert {case.text.split("(")[0] for case in ATTACKS} == set(attacks.names)
    assert (
        {case.text.split("(")[0] for case in CORRUPTIONS}
        == set(corruptions.names)
        == FEATURES | LABELS
    )


def test_every_threat_states_its_aim_and_an_example() -> None:
    members: list[type[Attack] | type[Corruption]] = [
        *map(attacks.__getitem__, attacks.names),
        *map(corruptions.__getitem__, corruptions.names),
    ]
    for threat in members:
        assert threat.aim.endswith("."), threat
        assert "\n" not in threat.aim, threat
        assert ">>> " in (threat.__doc__ or ""), threat


@every_attack
def test_attacks_keep_their_promises(case: Case) -> None:
    check_attack(case.attack, lacks=case.lacks)


@pytest.mark.parametrize(
    "rule", ["mean", "covariance-filter", "coordinate-median", lambda rows: rows.median(0).values]
)
@pytest.mark.parametrize("text", OPTIMIZED)
def test_optimized_attacks_keep_them_against_any_rule(text: str, rule: Rule | str) -> None:
    check_attack(attacks.parse(text), rule=rule, dtypes=ONE)


@pytest.mark.parametrize("rule", ["geometric-median", "radius-filter"])
@pytest.mark.parametrize("text", OPTIMIZED)
def test_optimized_attacks_keep_them_against_tiles(text: str, rule: str) -> None:
    """A list of tensors has other tiles than one tensor."""
    lacks = {"accepts all kinds of rows": "the tiles of a list are within its tensors"}
    check_attack(attacks.parse(text), rule=f"blockwise(tile=5) | {rule}", lacks=lacks, dtypes=ONE)


def test_only_these_attacks_need_more_than_rows() -> None:
    needs = {case.text: sorted(case.attack.needs) for case in ATTACKS if case.attack.needs}
    assert needs == {
        **{text: ["rule"] for text in (*OPTIMIZED, LATE)},
        "noisy-rows": ["generator"],
        "noisy-rows(deviation=0.5)": ["generator"],
        "noisy-rows(deviation=200.0, replace=True)": ["generator"],
        "ieee-bit-flips(bits=(9, 13), fraction=0.3)": ["generator"],
    }
    assert [case.text for case in ATTACKS if case.attack.takes_state] == [
        *HUDDLES,
        "lazy-rows",
        LATE,
        "mimic",
    ]


@pytest.mark.parametrize("case", [*ATTACKS, *CORRUPTIONS], ids=str)
def test_objects_are_their_configuration(case: Case) -> None:
    registry: Registry[Any] = attacks if case in ATTACKS else corruptions
    threat = registry.parse(case.text)
    assert registry.from_json(json.loads(json.dumps(registry.to_json(threat)))) == threat
    assert registry.parse(registry.format(threat)) == threat
    assert hash(threat) == hash(registry.parse(case.text))
    for field in fields(threat):
        with pytest.raises(FrozenInstanceError):
            setattr(threat, field.name, None)


@every_corruption
@given(st.integers(1, 10), st.sampled_from([1, 3]), st.integers(3, 12), st.data())
@settings(max_examples=15)
def test_touches_only_bad_samples_and_keeps_its_input(
    case: Case, n: int, channels: int, side: int, data: st.DataObject
) -> None:
    dtype = data.draw(st.sampled_from(DTYPES))
    mask = some_bad(n, data.draw(st.integers(0, n)), seed=side)
    images, labels = batch(n, channels, side, dtype, seed=n)
    images_before, labels_before = images.clone(), labels.clone()
    world = torch.get_rng_state()
    got, classes = case.corruption(images, labels, mask, generator=stream(0, "corruption"))
    again, classes_again = case.corruption(images, labels, mask, generator=stream(0, "corruption"))
    assert torch.equal(world, torch.get_rng_state())
    assert same(got, again)
    assert torch.equal(classes, classes_again)
    assert torch.equal(images, images_before)
    assert torch.equal(labels, labels_before)
    assert (got.dtype, got.shape, got.device) == (images.dtype, images.shape, images.device)
    assert (classes.dtype, classes.shape, classes.device) == (
        labels.dtype,
        labels.shape,
        labels.device,
    )
    assert same(got[~mask], images[~mask])
    assert torch.equal(classes[~mask], labels[~mask])


def changes_what_it_is_for(case: Case) -> None:
    images, labels = batch(40)
    mask = some_bad(40, 20)
    got, classes = case.corruption(images, labels, mask, generator=stream(0, "corruption"))
    name = case.corruption.name
    assert bool((got[mask] != images[mask]).flatten(1).any(1).all()) == (name in FEATURES)
    assert bool((classes[mask] != labels[mask]).any()) == (name in LABELS)


def corruptions_draw_from_the_generator_they_need(case: Case) -> None:
    images, labels = batch(40)
    mask = some_bad(40, 20)
    if case.corruption.needs_generator:
        with pytest.raises(
            ValueError, match=r"^`generator` must be a torch\.Generator, got NoneType\.$"
        ):
            case.corruption(images, labels, mask)
        a, b = (
            case.corruption(images, labels, mask, generator=stream(seed, "corruption"))
            for seed in (0, 1)
        )
        assert not (torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]))
    else:
        case.corruption(images, labels, mask)


GRAY, CLASSES, ALL = (
    torch.zeros(4, 1, 5, 5),
    torch.zeros(4, dtype=torch.int64),
    torch.ones(4).bool(),
)
BAD_BATCHES: list[tuple[Any, Any, Any, str]] = [
    (GRAY.to(torch.uint8), CLASSES, ALL,
     r"`images` must be floating, on the scale \[0, 1\] \(divide .* first\), got torch\.uint8\."),
    (GRAY[:, 0], CLASSES, ALL,
     r"`images` must have shape \[N, C, H, W\], none of it zero, got \(4, 5, 5\)\."),
    (None, CLASSES, ALL, r"`images` must be a floating tensor \[N, C, H, W\], got NoneType\."),
    (GRAY, CLASSES.float(), ALL,
     r"`labels` must be an int64 tensor \[4\], one class per image, got torch\.float32 \[4\]\."),
    (GRAY, CLASSES[:3], ALL,
     r"`labels` must be an int64 tensor \[4\], one class per image, got torch\.int64 \[3\]\."),
    (GRAY, None, ALL,
     r"`labels` must be an int64 tensor \[4\], one class per image, got NoneType\."),
    (GRAY, CLASSES, ALL[:3],
     r"`mask` must be a bool tensor \[4\], one entry per sample, got torch\.bool \[3\]\."),
]  # fmt: skip


def wrong_batches_are_refused(case: Case) -> None:
    bad = BAD_BATCHES
    if case.corruption.is_of_labels:  # takes samples of any shape and dtype
        wrong = r"`images` must be a tensor \[N, \.\.\.\], got NoneType\."
        bad = [(None, CLASSES, ALL, wrong), *(one for one in bad if one[0] is GRAY)]
    for images, labels, mask, message in bad:
        with pytest.raises(ValueError, match=f"^{message}$"):
            case.corruption(images, labels, mask, generator=stream(0, "corruption"))


CORRUPTION_CHECKS = [
    changes_what_it_is_for,
    corruptions_draw_from_the_generator_they_need,
    wrong_batches_are_refused,
]


@every_corruption
def test_contract_of_corruptions(case: Case) -> None:
    for check in CORRUPTION_CHECKS:
        check(case)
