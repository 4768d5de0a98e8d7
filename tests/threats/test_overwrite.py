"""An attack in place gives the same rows as its call; :func:`check_attack` tests ordinary rows."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from holdfast.geometry import DenseRows
from holdfast.seeds import stream
from holdfast.testing._rule_subject import HOSTILE
from holdfast.threats import Knowledge, State
from tests.samples import gaussian
from tests.threats.cases import ATTACKS, DTYPES, Case, bits, some_bad

N, D = 9, 12
every_attack = pytest.mark.parametrize("case", ATTACKS, ids=str)


def known(case: Case, d: int = D) -> Knowledge:
    directions = {name: gaussian(1, d)[0] for name in case.attack.needs_directions}
    return {
        "generator": stream(0, "attack"),
        "rule": "geometric-median",
        "directions": directions,
    }


def assert_overwrites_as_it_calls(
    case: Case, rows: Tensor, mask: Tensor, state: State = None, of: str = ""
) -> None:
    """The same rows to the bit, in the same memory."""
    sent = case.attack(rows, mask, state=state, **known(case, rows.shape[1]))
    place = rows.data_ptr()
    case.attack.overwrite(rows, mask, state=state, **known(case, rows.shape[1]))
    assert rows.data_ptr() == place, of
    assert bits(rows) == bits(sent), of


@every_attack
@given(st.integers(2, 12), st.integers(1, 30), st.data())
@settings(max_examples=5)
def test_equals_the_call(case: Case, n: int, d: int, data: st.DataObject) -> None:
    mask = some_bad(n, data.draw(st.integers(0, n - 1)), seed=d)
    dtype = data.draw(st.sampled_from(DTYPES))
    assert_overwrites_as_it_calls(case, gaussian(n, d, seed=n, dtype=dtype), mask)


@every_attack
def test_equals_the_call_on_hostile_rows(case: Case) -> None:
    for kind, make in HOSTILE.items():
        assert_overwrites_as_it_calls(case, make(gaussian(N, D)), some_bad(N, 3), of=kind)


@every_attack
def test_the_tensors_of_rows_are_the_rows(case: Case) -> None:
    """As in the lab: the attack overwrites the tensor of the rows, and the rows change."""
    matrix, mask = gaussian(N, D), some_bad(N, 3)
    rows = DenseRows(matrix)
    (own,) = rows.tensors
    assert own is matrix
    sent = case.attack(rows, mask, **known(case))
    case.attack.overwrite(own, mask, **known(case))
    assert bits(rows.matrix()) == bits(sent.matrix())


@every_attack
def test_refuses_what_it_cannot_overwrite(case: Case) -> None:
    mask = some_bad(N, 3)
    for rows in ([gaussian(N, D)], DenseRows(gaussian(N, D)), gaussian(N, D).view(N, 3, 4), None):
        with pytest.raises(ValueError, match=r"^`rows` must be a tensor \[n, d\], got \w+\.$"):
            case.attack.overwrite(rows, mask, **known(case))  # type: ignore[arg-type]
    rows = gaussian(N, D)
    for wrong in (mask[:-1], mask.long()):
        with pytest.raises(ValueError, match=r"^`mask` must be a bool tensor \[9\]"):
            case.attack.overwrite(rows, wrong, **known(case))
    assert bits(rows) == bits(gaussian(N, D))
