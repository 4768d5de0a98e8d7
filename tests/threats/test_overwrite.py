"""An attack in place gives the same rows as its call."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from holdfast.geometry import DenseRows
from holdfast.seeds import stream
from holdfast.threats import State
from tests.samples import HOSTILE, gaussian
from tests.threats.cases import ATTACKS, DTYPES, Case, some_bad

N, D = 9, 12
every_attack = pytest.mark.parametrize("case", ATTACKS, ids=str)


def bits(rows: Tensor) -> list[int]:
    """The bytes of the rows: they tell -0.0 from 0.0, and one NaN from another."""
    found: list[int] = rows.contiguous().view(torch.uint8).flatten().tolist()
    return found


def assert_overwrites_as_it_calls(
    case: Case, rows: Tensor, mask: Tensor, state: State = None, of: str = ""
) -> None:
    """The same rows to the bit, in the same memory; honest rows, mask and state unchanged."""
    before, mask_before = rows.clone(), mask.clone()
    state_before = None if state is None else state.clone()
    sent = case.attack(rows, mask, generator=stream(0, "attack"), state=state)
    assert bits(rows) == bits(before), of
    place = rows.data_ptr()
    case.attack.overwrite(rows, mask, generator=stream(0, "attack"), state=state)
    assert rows.data_ptr() == place, of
    assert bits(rows) == bits(sent), of
    assert bits(rows[~mask]) == bits(before[~mask]), of
    assert torch.equal(mask, mask_before), of
    assert state_before is None or (state is not None and bits(state) == bits(state_before))


@every_attack
@given(st.integers(2, 12), st.integers(1, 30), st.data())
@settings(max_examples=10)
def test_equals_the_call(case: Case, n: int, d: int, data: st.DataObject) -> None:
    mask = some_bad(n, data.draw(st.integers(0, n - 1)), seed=d)
    assert_overwrites_as_it_calls(
        case, gaussian(n, d, seed=n, dtype=data.draw(st.sampled_from(DTYPES))), mask
    )


def equals_the_call_with_what_was_learned(case: Case) -> None:
    mask, state = some_bad(N, 3), None
    for seed in range(4):
        rows = gaussian(N, D, seed=seed)
        learned = case.attack.learn(rows, mask, state)
        assert_overwrites_as_it_calls(case, rows, mask, state)
        state = learned


def equals_the_call_on_hostile_rows(case: Case) -> None:
    for kind, make in HOSTILE.items():
        assert_overwrites_as_it_calls(case, make(gaussian(N, D)), some_bad(N, 3), of=kind)


def rows_with_gaps_in_memory(case: Case) -> None:
    """Memory between the rows is not changed."""
    whole = gaussian(2 * N, 2 * D)
    before = whole.clone()
    assert_overwrites_as_it_calls(case, whole[::2, ::2], some_bad(N, 3))
    assert torch.equal(whole[1::2], before[1::2])
    assert torch.equal(whole[:, 1::2], before[:, 1::2])
    assert_overwrites_as_it_calls(case, gaussian(D, N).T, some_bad(N, 3))


def the_tensors_of_rows_are_the_rows(case: Case) -> None:
    """As in the lab: the attack overwrites the tensor of the rows, and the rows change."""
    matrix, mask = gaussian(N, D), some_bad(N, 3)
    rows = DenseRows(matrix)
    (own,) = rows.tensors
    assert own is matrix
    sent = case.attack(rows, mask, generator=stream(0, "attack"))
    case.attack.overwrite(own, mask, generator=stream(0, "attack"))
    assert bits(rows.matrix()) == bits(sent.matrix())


def refuses_what_it_cannot_overwrite(case: Case) -> None:
    attack, mask = case.attack, some_bad(N, 3)
    for rows in ([gaussian(N, D)], DenseRows(gaussian(N, D)), gaussian(N, D).view(N, 3, 4), None):
        with pytest.raises(ValueError, match=r"^`rows` must be a tensor \[n, d\], got \w+\.$"):
            attack.overwrite(rows, mask, generator=stream(0, "attack"))  # type: ignore[arg-type]
    rows = gaussian(N, D)
    for wrong in (mask[:-1], mask.long()):
        with pytest.raises(ValueError, match=r"^`mask` must be a bool tensor \[9\]"):
            attack.overwrite(rows, wrong, generator=stream(0, "attack"))
    if attack.needs_generator:
        with pytest.raises(
            ValueError, match=r"^`generator` must be a torch\.Generator, got NoneType\.$"
        ):
            attack.overwrite(rows, mask)
    if not attack.takes_state:
        with pytest.raises(ValueError, match=r"^`state` must be None for \w+\("):
            attack.overwrite(rows, mask, generator=stream(0, "attack"), state=torch.zeros(D))
    assert torch.equal(rows, gaussian(N, D))


CHECKS = [
    equals_the_call_with_what_was_learned,
    equals_the_call_on_hostile_rows,
    rows_with_gaps_in_memory,
    the_tensors_of_rows_are_the_rows,
    refuses_what_it_cannot_overwrite,
]


@every_attack
def test_in_place(case: Case) -> None:
    for check in CHECKS:
        check(case)
