"""Wrong arguments: one clear sentence, and no side effects."""

from typing import Any, cast

import pytest
import torch
from torch import Tensor

from holdfast.aggregators import (
    Aggregator,
    Bucketing,
    Bulyan,
    CenteredClipping,
    CoordinateMedian,
    CovarianceFilter,
    GeometricMedian,
    Krum,
    MajorityVote,
    Mean,
    NearestNeighborMixing,
    NormClipping,
    NormFilter,
    NormTrim,
    TrimmedMean,
    TrustedReference,
    Zeno,
)
from holdfast.errors import NonFiniteRowsError
from holdfast.geometry import DenseRows
from tests.loops import naming
from tests.samples import gaussian

ROWS = gaussian(5, 4)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            torch.randn(5),
            r"`rows` must have shape \[n, d\] \(or be a list of \[n, .*\] tensors\), got \(5,\)\.",
        ),
        (torch.randn(5, 2, 2), r"`rows` must have shape \[n, d\].*got \(5, 2, 2\)\."),
        (torch.tensor(1.0), r"first dimension that counts the rows, got a scalar\."),
        (
            torch.ones(3, 4, dtype=torch.int64),
            r"`rows` must be real floating point .*got torch\.int64\.",
        ),
        (
            torch.ones(3, 4, dtype=torch.complex64),
            r"`rows` must be real floating point .*got torch\.complex64\.",
        ),
        (
            torch.eye(3).to_sparse(),
            r"`rows` must be dense \(call \.to_dense\(\) first\), got torch\.sparse_coo\.",
        ),
        (torch.empty(0, 4), r"`rows` must have at least 1 row, got \(0, 4\)\."),
        (torch.empty(4, 0), r"`rows` must have at least 1 column, got \(4, 0\)\."),
        ([], r"`rows` must hold at least one tensor, got an empty list\."),
        (
            [torch.ones(3, 2), torch.ones(4, 2)],
            r"agree on the number of rows \(the first tensor has 3\), got 4\.",
        ),
        ([torch.ones(3, 2), torch.ones(3, 2).double()], r"agree on the dtype"),
        (
            None,
            r"`rows` must be a tensor \[n, d\] or a list of tensors \[n, \.\.\.\], got NoneType\.",
        ),
        (torch.ones(3, 4).to(torch.float8_e4m3fn), r"`rows` must be real floating point"),
        (
            [[1.0, 2.0]],
            r"`rows` must be a tensor \[n, d\] or a list of tensors \[n, \.\.\.\], got list\.",
        ),
    ],
)
def test_rows_of_a_wrong_kind(rows: Any, message: str) -> None:
    for rule in (GeometricMedian(), CoordinateMedian(), Mean()):
        with naming(rule), pytest.raises(ValueError, match=message):
            rule(rows)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (torch.ones(4), r"`row_weights` must have shape \(5,\), one weight per row, got \(4,\)\."),
        (torch.tensor([1.0, 1, 1, 1, -1]), r"`row_weights` must be finite and not negative"),
        (
            torch.tensor([1.0, 1, 1, 1, float("nan")]),
            r"`row_weights` must be finite and not negative",
        ),
        (
            torch.tensor([1.0, 1, 1, 1, float("inf")]),
            r"`row_weights` must be finite and not negative",
        ),
        (torch.zeros(5), r"`row_weights` must have a sum above 0"),
    ],
)
def test_wrong_row_weights(weights: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GeometricMedian()(ROWS, row_weights=weights)


def test_huge_row_weights_do_not_overflow() -> None:
    weights = torch.full((5,), 1e308, dtype=torch.float64)
    weights[0] = 1e300
    assert bool(torch.isfinite(Mean()(ROWS, row_weights=weights)).all())


def test_arguments_that_a_rule_does_not_take_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^`row_weights` is not accepted by Krum\(n_bad=1\)\.$"):
        Krum(n_bad=1)(ROWS, row_weights=torch.ones(5))
    mixed = NearestNeighborMixing(bad_fraction=0.25, rule=Mean())
    message = r"by NearestNeighborMixing\(bad_fraction=0\.25, rule=Mean\(\)\)\.$"
    with pytest.raises(ValueError, match=message):
        mixed(ROWS, reference=ROWS[0])


def test_what_a_rule_needs_is_asked_for() -> None:
    with pytest.raises(
        ValueError, match=r"`reference` must be given to TrustedReference\(\), got None\."
    ):
        TrustedReference()(ROWS)
    with pytest.raises(ValueError, match=r"`score` must be given to Zeno"):
        Zeno(n_bad=1)(ROWS)
    with pytest.raises(ValueError, match=r"`generator` must be given to Bucketing"):
        Bucketing(bucket_size=2, rule=Mean())(ROWS)
    with pytest.raises(ValueError, match=r"`score` must be a function"):
        Zeno(n_bad=1)(ROWS, score=3)  # type: ignore[call-overload]


def test_wrong_references() -> None:
    rule = TrustedReference()
    with pytest.raises(
        ValueError, match=r"`reference` must have shape \(4,\), one entry per column, got \(3,\)\."
    ):
        rule(ROWS, reference=torch.ones(3))
    with pytest.raises(
        ValueError, match=r"`reference` must be a dense floating tensor, got list\."
    ):
        rule(ROWS, reference=[1.0, 2.0, 3.0, 4.0])  # type: ignore[call-overload]
    with pytest.raises(ValueError, match=r"`reference` must be finite, got NaN or infinity\."):
        rule(ROWS, reference=torch.tensor([1.0, float("nan"), 0.0, 0.0]))


@pytest.mark.parametrize(
    "rule",
    [GeometricMedian(), CoordinateMedian(), TrimmedMean(n_bad=2), Krum(n_bad=1), Mean()],
    ids=lambda rule: rule.name,
)
def test_a_non_finite_majority_is_an_error(rule: Aggregator) -> None:
    rows = ROWS.clone()
    rows[:3, 1] = float("nan")
    before = rows.clone()
    with pytest.raises(
        NonFiniteRowsError,
        match=r"finite in at least half of the rows, got 3 of 5 with NaN or infinity\.",
    ):
        rule(rows)
    assert torch.equal(rows.nan_to_num(), before.nan_to_num())


def test_a_non_finite_majority_of_the_weight_is_an_error() -> None:
    rows = ROWS.clone()
    rows[0, 0] = float("inf")
    for rule in (GeometricMedian(), CoordinateMedian(), Mean()):
        with pytest.raises(
            NonFiniteRowsError, match=r"at least half of the weight, got 0\.4 of it\."
        ):
            rule(rows, row_weights=torch.tensor([6.0, 1, 1, 1, 1]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Krum(n_bad=-1), r"`n_bad` must be a whole number of at least 0, got -1\."),
        (
            lambda: Krum(n_bad=cast(Any, 1.5)),
            r"`n_bad` must be a whole number of at least 0, got 1\.5\.",
        ),
        (lambda: Krum(n_bad=True), r"`n_bad` must be a whole number of at least 0, got True\."),
        (lambda: NormTrim(bad_fraction=1.5), r"`bad_fraction` must be in \[0, 0\.5\), got 1\.5\."),
        (
            lambda: NormFilter(bad_fraction=float("nan")),
            r"`bad_fraction` must be in \[0, 0\.5\), got nan\.",
        ),
        (
            lambda: NormFilter(n_bad=1, bad_fraction=0.1),
            r"Exactly one of `n_bad` and `bad_fraction` must be given, got both\.",
        ),
        (
            lambda: NormClipping(rule=Mean()),
            r"Exactly one of `radius`, `n_bad` and `bad_fraction` must be given, got neither\.",
        ),
        (
            lambda: NormClipping(radius=1.0, bad_fraction=0.1, rule=Mean()),
            r"one of `radius`, `n_bad` and `bad_fraction` must be given, got radius and bad_frac",
        ),
        (lambda: Krum(), r"Exactly one of `n_bad` and `bad_fraction` must be given, got neither\."),
        (
            lambda: CovarianceFilter(n_bad=1, bad_fraction=0.1),
            r"At most one of `n_bad` and `bad_fraction` may be given, got both\.",
        ),
        (lambda: Krum(bad_fraction=0.5), r"`bad_fraction` must be in \[0, 0\.5\), got 0\.5\."),
        (lambda: Bulyan(bad_fraction=0.25), r"`bad_fraction` must be in \[0, 0\.25\), got 0\.25"),
        (lambda: Zeno(bad_fraction=1.0), r"`bad_fraction` must be in \[0, 1\), got 1\.0\."),
        (
            lambda: CenteredClipping(radius=0.0),
            r"`radius` must be a finite number above 0, got 0\.0\.",
        ),
        (lambda: CenteredClipping(radius=10**400), r"`radius` must be a finite number above 0"),
        (
            lambda: CenteredClipping(radius=float("inf")),
            r"`radius` must be a finite number above 0, got inf\.",
        ),
        (
            lambda: CenteredClipping(radius=cast(Any, "3")),
            r"`radius` must be a finite number above 0, got 3\.",
        ),
        (
            lambda: GeometricMedian(tolerance=0.0),
            r"`tolerance` must be a finite number above 0, got 0\.0\.",
        ),
        (
            lambda: Bucketing(bucket_size=0, rule=Mean()),
            r"`bucket_size` must be a whole number of at least 1, got 0\.",
        ),
        (
            lambda: Bucketing(bucket_size=2, rule=cast(Any, 3)),
            r"`rule` must be an Aggregator, got int\.",
        ),
    ],
)
def test_wrong_hyper_parameters(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_rules_are_immutable_and_keyword_only() -> None:
    with pytest.raises(AttributeError):
        Krum(n_bad=1).n_bad = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        Krum(1)  # type: ignore[call-arg]


@pytest.mark.parametrize("n", [1, 2])
def test_one_and_two_rows(n: int) -> None:
    rows = gaussian(n, 6)
    for rule in (GeometricMedian(), CoordinateMedian(), Mean()):
        torch.testing.assert_close(rule(rows), rows.mean(0))


def test_parameters_without_entries_are_fine() -> None:
    parts = [torch.ones(3, 0), gaussian(3, 2, 4), torch.ones(3, 0)]
    assert DenseRows(parts).d == 2
    parts[1][0] = float("nan")
    for rule in (GeometricMedian(), CoordinateMedian(), Mean()):
        assert rule(parts).shape == (2,)


def test_wrong_kinds_of_what_comes_with_the_call() -> None:
    rule = Bucketing(bucket_size=2, rule=Mean())
    with pytest.raises(ValueError, match=r"`generator` must be a torch\.Generator, got int\."):
        rule(ROWS, generator=cast(Any, 3))
    with pytest.raises(
        ValueError, match=r"`row_weights` must be a dense tensor of real numbers, got str\."
    ):
        Mean()(ROWS, row_weights=cast(Any, "a"))
    with pytest.raises(
        ValueError,
        match=r"`row_weights` must be a dense tensor of real numbers, got torch\.complex64\.",
    ):
        Mean()(ROWS, row_weights=torch.ones(5, dtype=torch.complex64))
    with pytest.raises(
        ValueError, match=r"`reference` must be a dense floating tensor, got torch\.int64\."
    ):
        TrustedReference()(ROWS, reference=torch.ones(4, dtype=torch.int64))


def test_wrappers_refuse_a_rule_that_depends_on_the_order_of_rows() -> None:
    with pytest.raises(
        ValueError,
        match=r"`rule` must not depend on the order of rows, which wrappers .*, got Majority",
    ):
        NormClipping(radius=1.0, rule=MajorityVote(group_size=3))


def test_a_rule_resists_nothing_where_it_is_not_defined() -> None:
    assert Krum(n_bad=6).n_resisted(3) == 0
    assert Krum(n_bad=6).n_resisted(15) == 6
