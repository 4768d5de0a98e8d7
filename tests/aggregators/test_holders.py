"""Rows whose columns have several holders: all decide alike, and as one holder would."""

import pytest
import torch
from torch import Tensor

from holdfast.aggregators import Aggregate
from holdfast.errors import NonFiniteRowsError
from holdfast.geometry import DenseRows
from tests.aggregators.cases import CASES, Case, N
from tests.holders import Holder, on_holders

D = 23
CUTS = [0, 5, 6, D]
"""Unequal shares of the columns, one of a single column."""


def on_one(case: Case, rows: Tensor) -> Aggregate:
    return case.rule.aggregate(rows, **case.extras(rows[4:]))


def on_three(case: Case, rows: Tensor) -> list[Aggregate]:
    extras, rule = case.extras(rows[4:]), case.rule  # Python 3.11 must not parse in many threads
    if "score" in extras:
        extras["score"] = lambda part: float(part.abs().sum())  # another for each holder

    def aggregate(rank: int, holder: Holder) -> Aggregate:
        mine = slice(CUTS[rank], CUTS[rank + 1])
        own = dict(extras)
        if "reference" in own:
            own["reference"] = own["reference"][mine]
        if "generator" in own:
            own["generator"] = case.extras(rows)["generator"]  # one each, equally seeded
        return rule.aggregate(DenseRows(rows[:, mine].clone(), holders=holder), **own)

    return on_holders(3, aggregate)


def hostile(rows: Tensor, value: float) -> Tensor:
    """The first holder sees nothing wrong with row 1, nor the second with row 2."""
    rows = rows.clone()
    rows[1, CUTS[2] :] *= value
    rows[2, : CUTS[1]] *= value
    return rows


IN_ONE_PROCESS = [case for case in CASES if "blockwise" in case.text]
SHARED = [case for case in CASES if case not in IN_ONE_PROCESS]
COMPARABLE = [
    case
    for case in SHARED
    # A score of some of the columns is another score, and a sketch of shares is another sketch.
    if "score" not in case.rule.needs and "sketched" not in case.text
]


@pytest.mark.parametrize("value", [1.0, -100.0, 1e30, float("nan"), float("inf")])
@pytest.mark.parametrize("case", COMPARABLE, ids=str)
def test_holders_of_columns_decide_as_one_would(case: Case, value: float) -> None:
    rows = hostile(case.rows(N, D, dtype=torch.float64), value)
    if "majority-vote" in case.text and value != 1.0:
        rows = case.rows(N, D, dtype=torch.float64)
        rows[1, CUTS[2] :] = value
    expected, found = on_one(case, rows), on_three(case, rows)
    vector = torch.cat([one.vector for one in found])
    torch.testing.assert_close(vector, expected.vector, rtol=1e-6, atol=1e-6)
    for one in found:
        assert one.rejected.equal(expected.rejected)
        if one.weights is not None and expected.weights is not None:
            torch.testing.assert_close(one.weights, expected.weights, rtol=1e-6, atol=1e-6)
            assert found[0].weights is not None
            assert one.weights.equal(found[0].weights)


@pytest.mark.parametrize("case", [case for case in SHARED if case not in COMPARABLE], ids=str)
def test_holders_of_columns_decide_alike(case: Case) -> None:
    found = on_three(case, hostile(case.rows(N, D, dtype=torch.float64), 1e6))
    for one in found:
        assert one.weights is not None
        assert found[0].weights is not None
        assert one.weights.equal(found[0].weights)
        assert one.vector.isfinite().all()


@pytest.mark.parametrize("case", IN_ONE_PROCESS, ids=str)
def test_a_tile_on_two_holders_is_refused(case: Case) -> None:
    with pytest.raises(ValueError, match=r"^`rows` must have all columns in one process"):
        on_three(case, case.rows(N, D))


@pytest.mark.parametrize("text", ["mean", "geometric-median", "coordinate-median"])
def test_rows_that_one_holder_sees_to_be_lost_are_lost_for_all(text: str) -> None:
    case = next(case for case in CASES if case.text == text)
    rows = case.rows(N, D, dtype=torch.float64)
    rows[: N // 2 + 1, 0] = torch.nan
    with pytest.raises(NonFiniteRowsError):
        on_three(case, rows)
