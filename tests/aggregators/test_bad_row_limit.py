"""The number of bad rows to resist, as a number and as a fraction."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.aggregators import (
    Aggregator,
    BadRowLimit,
    Bulyan,
    CovarianceFilter,
    Krum,
    MultiKrum,
    NormFilter,
    TrimmedMean,
    Zeno,
    rules,
)
from tests.aggregators.cases import CASES, Case, N
from tests.samples import gaussian

FRACTIONS = [case for case in CASES if "bad_fraction" in case.text and "norm-trim" not in case.text]
LIMITED: list[tuple[type[BadRowLimit], int, int]] = [
    (Krum, 2, 3),
    (Bulyan, 4, 3),
    (TrimmedMean, 2, 1),
    (CovarianceFilter, 2, 1),
    (Zeno, 1, 1),
]


@pytest.mark.parametrize("case", FRACTIONS, ids=str)
def test_a_fraction_is_the_whole_part_of_its_share_of_rows(case: Case) -> None:
    """Also with non-finite rows, which count among the bad ones."""
    for n in (N, N + 1 if "minimum" in case.text else 40):
        text = case.text
        for stage in text.split("|"):
            fraction = float(stage.split("bad_fraction=")[1].split(")")[0].split(",")[0])
            counted = f"n_bad={int(fraction * n + 1e-12)}"
            text = text.replace(f"bad_fraction={fraction}", counted, 1)
            if "bad_fraction" not in text:
                break
        rows = case.rows(n, 23)
        for n_lost in range(3):
            rows[:n_lost] = float("nan")
            extras = case.extras(rows[2:])
            assert torch.equal(case.rule(rows, **extras), rules.parse(text)(rows, **extras))


@given(st.integers(0, 10_000), st.integers(0, 400))
def test_the_number_of_rows_needed_is_sufficient_and_the_smallest(share: int, more: int) -> None:
    for kind, per_bad, besides in LIMITED:
        fraction = share / 10_000 / per_bad * 0.999
        rule = kind(bad_fraction=fraction)
        assert isinstance(rule, Aggregator)
        for n in (rule.n_needed + more, rule.n_needed):
            assert rule.count_bad(n) == int(fraction * n + 1e-12)
            assert n >= per_bad * rule.count_bad(n) + besides
        below = rule.n_needed - 1
        assert below == besides - 1 or below < per_bad * int(fraction * below + 1e-12) + besides


def test_a_number_needs_a_fixed_number_of_rows() -> None:
    for kind, per_bad, besides in LIMITED:
        assert kind(n_bad=3).n_needed == 3 * per_bad + besides
    assert MultiKrum(n_bad=3, n_selected=20).n_needed == 23
    assert MultiKrum(bad_fraction=0.25, n_selected=20).n_needed == 26  # 6 of 26 may be lost


def test_rounding_neither_loses_nor_adds_a_row() -> None:
    assert NormFilter(bad_fraction=0.29).count_bad(100) == 29  # 0.29 * 100 < 29
    almost_half = TrimmedMean(bad_fraction=0.5 - 1e-13)
    assert almost_half.count_bad(2) == 0
    assert torch.equal(almost_half(gaussian(2, 3)), gaussian(2, 3).mean(0))
