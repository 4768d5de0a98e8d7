"""Contracts of all attacks and all corruptions."""

import json
from dataclasses import FrozenInstanceError, fields
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from holdfast import Layout
from holdfast.geometry import DenseRows
from holdfast.registry import Registry
from holdfast.seeds import stream
from holdfast.threats import Attack, Corruption, State, attacks, corruptions
from tests.samples import HOSTILE, gaussian
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

N, D = 9, 12
every_attack = pytest.mark.parametrize("case", ATTACKS, ids=str)
every_corruption = pytest.mark.parametrize("case", CORRUPTIONS, ids=str)


def call(case: Case, rows: Tensor, mask: Tensor, seed: int = 0, state: State = None) -> Tensor:
    return case.attack(rows, mask, generator=stream(seed, "attack"), state=state)


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
@given(st.integers(2, 12), st.integers(1, 30), st.data())
@settings(max_examples=15)
def test_touches_only_bad_rows_and_keeps_its_input(
    case: Case, n: int, d: int, data: st.DataObject
) -> None:
    dtype = data.draw(st.sampled_from(DTYPES))
    mask = some_bad(n, data.draw(st.integers(0, n - 1)), seed=d)
    rows = gaussian(n, d, seed=n, dtype=dtype)
    before, mask_before = rows.clone(), mask.clone()
    sent = call(case, rows, mask)
    assert same(rows, before)
    assert torch.equal(mask, mask_before)
    assert sent.dtype == dtype
    assert sent.shape == rows.shape
    assert sent.device == rows.device
    assert same(sent[~mask], rows[~mask])
    assert sent.data_ptr() != rows.data_ptr()


def changes_every_bad_row(case: Case) -> None:
    rows, mask = gaussian(N, D), some_bad(N, 3)
    sent = call(case, rows, mask)
    assert bool((sent[mask] != rows[mask]).any(1).all())


def is_reproducible_and_draws_only_from_its_generator(case: Case) -> None:
    for dtype in DTYPES:
        rows, mask = gaussian(N, D, dtype=dtype), some_bad(N, 3)
        world = torch.get_rng_state()
        first = call(case, rows, mask)
        assert same(first, call(case, rows, mask)), dtype
        assert torch.equal(world, torch.get_rng_state()), dtype
        assert same(first, call(case, rows, mask, seed=1)) != case.attack.needs_generator, dtype


def state_is_explicit(case: Case) -> None:
    """The same state gives the same rows, whatever the object did in between."""
    attack, mask = case.attack, some_bad(N, 3)
    state: State = None
    for seed in range(3):
        state = attack.learn(gaussian(N, D, seed=seed), mask, state)
    assert (state is not None) == (attack.name in ("lazy-rows", "mimic"))
    kept = None if state is None else state.clone()
    rows = gaussian(N, D, seed=3)
    first = attack(rows, mask, generator=stream(0, "attack"), state=state)
    attack(gaussian(N, D, seed=4), mask, generator=stream(1, "attack"), state=state)
    attack.learn(gaussian(N, D, seed=5), mask, state)
    assert same(first, call(case, rows, mask, state=state))
    assert state is None or (kept is not None and torch.equal(state, kept))


def lists_and_dense_rows_come_back_in_kind(case: Case) -> None:
    model = torch.nn.Linear(3, 3)
    layout, mask = Layout(model), some_bad(N, 3)
    matrix = gaussian(N, 12)
    tensors = [matrix[:, :9].reshape(N, 3, 3), matrix[:, 9:]]
    wanted = call(case, matrix, mask)
    attack = case.attack

    def sent(rows: DenseRows) -> DenseRows:
        return attack(rows, mask, generator=stream(0, "attack"))

    listed = attack(tensors, mask, generator=stream(0, "attack"))
    assert [part.shape for part in listed] == [part.shape for part in tensors]
    assert same(torch.cat([part.flatten(1) for part in listed], dim=1), wanted)
    for rows in (layout.rows(matrix), layout.rows(tensors), DenseRows(tensors), DenseRows(matrix)):
        assert same(sent(rows).matrix(), wanted)
        assert sent(rows).layout is rows.layout
        assert sent(rows).sections == rows.sections
        assert same(rows.matrix(), matrix)


def strided_and_kept_rows(case: Case) -> None:
    rows, mask = gaussian(D, N).T, some_bad(N, 3)
    assert same(call(case, rows, mask), call(case, rows.contiguous(), mask))
    kept = DenseRows(gaussian(2 * N, D)).keep(torch.arange(0, 2 * N, 2))
    assert same(
        case.attack(kept, mask, generator=stream(0, "attack")).matrix(),
        call(case, gaussian(2 * N, D)[::2], mask),
    )


def rows_that_need_a_gradient_are_detached(case: Case) -> None:
    rows = gaussian(N, D).requires_grad_()
    assert not call(case, rows, some_bad(N, 3)).requires_grad


def without_bad_rows_nothing_changes(case: Case) -> None:
    rows = gaussian(N, D)
    assert same(call(case, rows, some_bad(N, 0)), rows)


def without_honest_rows(case: Case) -> None:
    mask = some_bad(N, N)
    if case.attack.looks_at_honest:
        needed = r"^`mask` must leave at least one honest row \(needed by \w+\(.*\)\), got none\.$"
        with pytest.raises(ValueError, match=needed):
            call(case, gaussian(N, D), mask)
    else:
        assert call(case, gaussian(N, D), mask).shape == (N, D)


def hostile_magnitudes_do_not_crash(case: Case) -> None:
    mask = some_bad(N, 3)
    for (kind, make), dtype in product(HOSTILE.items(), DTYPES):
        rows = make(gaussian(N, D, dtype=dtype))
        sent, state = call(case, rows, mask), case.attack.learn(rows, mask)
        call(case, rows, mask, state=state)
        if bool(torch.isfinite(rows).all()) and case.attack.saturates:
            assert bool(torch.isfinite(sent).all()), (kind, dtype)
            assert state is None or bool(torch.isfinite(state).all()), (kind, dtype)


def half_precision_is_rounded_once(case: Case) -> None:
    """Bad rows are those of float32, rounded once. (Flipped bits are those of the dtype itself.)"""
    if case.attack.name == "ieee-bit-flips":
        return
    for dtype in (torch.bfloat16, torch.float16):
        rows, mask = gaussian(N, D, dtype=dtype), some_bad(N, 3)
        largest = torch.finfo(dtype).max
        wide = call(case, rows.float(), mask)
        wide = wide.where(~wide.isfinite(), wide.clamp(-largest, largest))
        assert same(call(case, rows, mask), wide.to(dtype)), dtype


HAS_A_SIZE = {"noisy-rows", "non-finite", "ieee-bit-flips", "hijack"}
"""Attacks with values that do not scale with the rows."""


def scales_with_the_rows(case: Case) -> None:
    """Scales exactly with the rows, far beyond where squares of float32 overflow or vanish."""
    if case.attack.name in HAS_A_SIZE:
        return
    rows, mask = gaussian(N, D), some_bad(N, 3)
    for unit in (2.0**-100, 2.0**100):
        assert same(call(case, unit * rows, mask), unit * call(case, rows, mask)), unit


BAD_MASKS: list[tuple[Any, str]] = [
    (torch.zeros(N - 1, dtype=torch.bool), r"torch\.bool \[8\]"),
    (torch.zeros(N, dtype=torch.int64), r"torch\.int64 \[9\]"),
    (torch.zeros(N, 1, dtype=torch.bool), r"torch\.bool \[9, 1\]"),
    ([False] * N, "list"),
    (None, "NoneType"),
]


def wrong_masks_are_refused(case: Case) -> None:
    for mask, got in BAD_MASKS:
        message = rf"^`mask` must be a bool tensor \[9\], one entry per row, got {got}\.$"
        with pytest.raises(ValueError, match=message):
            call(case, gaussian(N, D), mask)
        with pytest.raises(ValueError, match=message):
            case.attack.learn(gaussian(N, D), mask)


def a_generator_is_needed_or_not(case: Case) -> None:
    rows, mask = gaussian(N, D), some_bad(N, 3)
    if case.attack.needs_generator:
        with pytest.raises(
            ValueError, match=r"^`generator` must be a torch\.Generator, got NoneType\.$"
        ):
            case.attack(rows, mask)
    else:
        assert same(case.attack(rows, mask), call(case, rows, mask))


def a_state_is_taken_or_refused(case: Case) -> None:
    rows, mask = gaussian(N, D), some_bad(N, 3)
    if not case.attack.takes_state:
        with pytest.raises(ValueError, match=r"^`state` must be None for \w+\(.*\), got Tensor\.$"):
            call(case, rows, mask, state=torch.zeros(D))
    else:
        with pytest.raises(ValueError, match=r"^`state` must have shape \(.*\), got \(5,\)\.$"):
            call(case, rows, mask, state=torch.zeros(5))
        with pytest.raises(
            ValueError, match=r"^`state` must be a floating tensor, got torch\.int64\.$"
        ):
            call(case, rows, mask, state=torch.zeros(5, dtype=torch.int64))


def objects_are_their_configuration(case: Case) -> None:
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
    for images, labels, mask, message in BAD_BATCHES:
        with pytest.raises(ValueError, match=f"^{message}$"):
            case.corruption(images, labels, mask, generator=stream(0, "corruption"))


ATTACK_CHECKS = [
    changes_every_bad_row,
    is_reproducible_and_draws_only_from_its_generator,
    state_is_explicit,
    lists_and_dense_rows_come_back_in_kind,
    strided_and_kept_rows,
    rows_that_need_a_gradient_are_detached,
    without_bad_rows_nothing_changes,
    without_honest_rows,
    hostile_magnitudes_do_not_crash,
    wrong_masks_are_refused,
    a_generator_is_needed_or_not,
    a_state_is_taken_or_refused,
    half_precision_is_rounded_once,
    scales_with_the_rows,
    objects_are_their_configuration,
]
CORRUPTION_CHECKS = [
    changes_what_it_is_for,
    corruptions_draw_from_the_generator_they_need,
    wrong_batches_are_refused,
    objects_are_their_configuration,
]


@every_attack
def test_contract_of_attacks(case: Case) -> None:
    for check in ATTACK_CHECKS:
        check(case)


@every_corruption
def test_contract_of_corruptions(case: Case) -> None:
    for check in CORRUPTION_CHECKS:
        check(case)
