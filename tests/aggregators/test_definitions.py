"""Every rule against its definition in slow, obvious code."""

import math
from typing import Any, cast

import numpy
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
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
    MeanAroundMedian,
    Medoid,
    MinimumDiameter,
    MinimumVariance,
    MultiKrum,
    NearestNeighborMixing,
    NeighborMean,
    NormClipping,
    NormFilter,
    NormTrim,
    RadiusFilter,
    ResilienceFilter,
    SignMajority,
    SpectralFilter,
    TrimmedMean,
    TrustedReference,
    Zeno,
    rules,
)
from holdfast.errors import NoMajorityError
from holdfast.geometry import Outcome
from holdfast.seeds import stream
from tests.oracle import rules as oracle
from tests.samples import gaussian

shapes = given(n=st.integers(7, 13), d=st.integers(1, 9), seed=st.integers(0, 10_000))
few = settings(max_examples=25)


def rows64(n: int, d: int, seed: int) -> Tensor:
    return gaussian(n, d, seed, torch.float64)


def assert_close(got: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(got.double(), wanted.double(), rtol=1e-9, atol=1e-9)


@shapes
def test_mean_and_medians_are_scipys(n: int, d: int, seed: int) -> None:
    rows = rows64(n, d, seed)
    assert_close(Mean()(rows), rows.mean(0))
    assert_close(CoordinateMedian()(rows), torch.quantile(rows, 0.5, dim=0))
    for n_bad in range((n - 1) // 2):
        trimmed = scipy.stats.trim_mean(rows.numpy(), n_bad / n + 1e-9, axis=0)
        assert_close(TrimmedMean(n_bad=n_bad)(rows), torch.from_numpy(trimmed))


@given(
    # With an odd sum no set of rows has exactly half of the weight: a tie that rounding would
    # break.
    weights=st.lists(st.integers(0, 4), min_size=5, max_size=9).filter(lambda w: sum(w) % 2 == 1),
    d=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_whole_row_weights_are_repetitions(weights: list[int], d: int, seed: int) -> None:
    """A row of weight 3 counts as three rows."""
    rows = rows64(len(weights), d, seed)
    repeated = rows.repeat_interleave(torch.tensor(weights), dim=0)
    eta = torch.tensor(weights, dtype=torch.float32)
    for rule in (
        Mean(),
        CoordinateMedian(),
        SignMajority(),
        GeometricMedian(),
        RadiusFilter(radius=1.0),
    ):
        torch.testing.assert_close(
            rule(rows, row_weights=eta), rule(repeated), rtol=1e-4, atol=2e-4
        )
    assert_close(
        CenteredClipping(radius=1.0)(rows, row_weights=eta), CenteredClipping(radius=1.0)(repeated)
    )
    sums = torch.cdist(
        torch.stack([Medoid()(rows, row_weights=eta), Medoid()(repeated)]), repeated
    ).sum(1)
    assert_close(sums[0], sums[1])  # two rows may tie


def test_row_weights_shift_the_breakdown_point() -> None:
    """Resisted is what has less than half of the weight, also if it is the majority by number."""
    rows = gaussian(9, 6)
    rows[:6] = 1e6 * gaussian(1, 6)
    light = torch.tensor([0.1] * 6 + [1.0] * 3)
    for rule in (GeometricMedian(), CoordinateMedian(), RadiusFilter(), Medoid()):
        assert float(rule(rows, row_weights=light).norm()) < 10
        assert float(rule(rows).norm()) > 1e5


@few
@shapes
def test_krum_family(n: int, d: int, seed: int) -> None:
    rows = rows64(n, d, seed)
    n_bad = (n - 3) // 2
    assert_close(Krum(n_bad=n_bad)(rows), oracle.krum(rows, n_bad))
    assert_close(MultiKrum(n_bad=n_bad)(rows), oracle.multi_krum(rows, n_bad, n - n_bad - 2))
    assert_close(MultiKrum(n_bad=1, n_selected=3)(rows), oracle.multi_krum(rows, 1, 3))
    assert_close(Bulyan(n_bad=(n - 3) // 4)(rows), oracle.bulyan(rows, (n - 3) // 4))


@few
@shapes
def test_minimum_diameter(n: int, d: int, seed: int) -> None:
    rows = rows64(n, d, seed)
    assert_close(MinimumDiameter(n_bad=2)(rows), oracle.minimum_diameter(rows, 2))


@few
@shapes
def test_minimum_variance_and_neighbor_mean(n: int, d: int, seed: int) -> None:
    rows = rows64(n, d, seed)
    assert_close(MinimumVariance(n_bad=2)(rows), oracle.minimum_variance(rows, 2))
    rule = NeighborMean(n_bad=2, index=seed % n)
    assert_close(rule(rows), oracle.neighbor_mean(rows, 2, seed % n))


def test_minimum_variance_refuses_too_many_subsets() -> None:
    with pytest.raises(ValueError, match=r"`n_bad` must leave at most 1,000,000,000 operations"):
        MinimumVariance(n_bad=15)(gaussian(40, 3))


def test_neighbor_mean_needs_its_own_row() -> None:
    rows = gaussian(5, 3)
    rows[2] = float("nan")
    with pytest.raises(ValueError, match=r"`rows` must be finite in the given row .*, got 2\."):
        NeighborMean(n_bad=1, index=2)(rows)


def test_krum_is_relaxed_only_if_asked_for() -> None:
    rows = gaussian(6, 3)
    with pytest.raises(ValueError, match=r"`rows` must have at least 9 rows"):
        Krum(n_bad=3)(rows)
    relaxed = Krum(n_bad=3, relaxed=True)
    assert_close(relaxed(rows), oracle.krum(rows, 3))
    assert (relaxed.n_needed, relaxed.n_resisted(6), relaxed.n_resisted(9)) == (6, 1, 3)


def test_multi_krum_weights_the_mean_of_the_selected_rows() -> None:
    rows = torch.tensor([[1.0], [1.1], [1.2], [3.0], [-80.0]])
    rule, eta = MultiKrum(n_bad=1, n_selected=3), torch.tensor([1.0, 1.0, 2.0, 5.0, 90.0])
    assert_close(rule(rows, row_weights=eta), torch.tensor([4.5 / 4]))


@pytest.mark.parametrize("text", ["geometric-median", "krum(n_bad=2)", "norm-filter(n_bad=2)"])
def test_inner_products_are_enough_for_weights(text: str) -> None:
    rows, rule = rows64(9, 40, 1), rules.parse(text)
    wanted = rule.aggregate(rows).weights
    assert wanted is not None
    assert_close(rule.weights_from_gram(rows @ rows.T), wanted)
    mixing = NearestNeighborMixing(n_bad=2, rule=text)
    mixed = mixing.aggregate(rows).weights
    assert mixed is not None
    assert_close(mixing.weights_from_gram(rows @ rows.T), mixed)


def test_wrong_inner_products_are_refused() -> None:
    for gram, message in (
        (torch.ones(2, 3), r"`gram` must have as many rows as columns, at least 1, got \(2, 3\)"),
        (torch.ones(3), r"`gram` must be a floating tensor \[n, n\], got \(3,\)"),
        (torch.full((2, 2), torch.nan), r"`gram` must be finite"),
        (-torch.eye(2), r"`gram` must have squared norms on its diagonal"),
    ):
        with pytest.raises(ValueError, match=message):
            GeometricMedian().weights_from_gram(gram)
    with pytest.raises(ValueError, match="GramRows cannot be read by column"):
        CoordinateMedian().weights_from_gram(torch.eye(3))


def test_numpy_in_gives_numpy_out() -> None:
    rows = rows64(7, 5, 2)
    array = rows.numpy()
    for rule in (Mean(), CoordinateMedian(), GeometricMedian()):
        found = rule(array)
        assert isinstance(found, numpy.ndarray)
        assert_close(torch.from_numpy(found), rule(rows))
        assert isinstance(rule([array[:, :2], array[:, 2:]]), numpy.ndarray)
    weights: Any = numpy.ones(7)
    assert_close(torch.from_numpy(Mean()(array, row_weights=weights)), rows.mean(0))
    array.flags.writeable = False
    assert_close(torch.from_numpy(Mean()(array)), rows.mean(0))


def test_a_list_of_vectors_is_refused() -> None:
    vectors = list(gaussian(5, 4))
    message = r"`rows` must be a tensor .*, got 5 vectors; pass torch.stack\(vectors\) if each"
    for given_rows in (vectors, [vector.numpy() for vector in vectors]):
        with pytest.raises(ValueError, match=message):
            GeometricMedian()(given_rows)
    assert Mean()([torch.ones(3, 2), torch.ones(3)]).shape == (3,)  # a bias may have one column


def test_pre_aggregators_work_alone() -> None:
    rows = rows64(7, 5, 3)
    mixed = NearestNeighborMixing(n_bad=2, rule="mean").transform(rows)
    assert_close(torch.as_tensor(mixed), oracle.nearest_neighbor_mixing(rows, 2))
    clipped = torch.as_tensor(NormClipping(radius=1.1, rule="mean").transform(rows))
    assert_close(clipped, oracle.norm_clipping(rows, 1.1))


def test_results_print_on_one_short_line() -> None:
    rows = gaussian(9, 1000)
    rows[3] *= 1e6
    text = repr(RadiusFilter().aggregate(rows))
    assert text == ("Aggregate(d=1000, n=9, rejected=[3], outcome='computed in closed form')")


def test_minimum_diameter_refuses_too_many_subsets() -> None:
    with pytest.raises(
        ValueError,
        match=r"`n_bad` must leave at most 100,000,000 distances within .* 40 rows, got 15 \(",
    ):
        MinimumDiameter(n_bad=15)(gaussian(40, 3))


@shapes
def test_mean_around_median(n: int, d: int, seed: int) -> None:
    rows = rows64(n, d, seed)
    for n_bad in (0, 1, 3):
        assert_close(
            MeanAroundMedian(n_bad=n_bad)(rows), oracle.mean_around_median(rows, n - n_bad)
        )


def test_mean_around_median_shares_places_between_ties() -> None:
    assert MeanAroundMedian(n_bad=1)(torch.tensor([[0.0], [1.0], [2.0]])).tolist() == [1.0]


def test_mean_around_median_survives_a_deviation_that_overflows() -> None:
    """Infinity times a weight of zero would be NaN."""
    rows = torch.tensor([[torch.finfo(torch.float32).min], [1e33], [1.1e33], [1.2e33], [1.3e33]])
    torch.testing.assert_close(MeanAroundMedian(n_bad=1)(rows), torch.tensor([1.15e33]))


@shapes
def test_medoid_minimizes_the_sum_of_distances(n: int, d: int, seed: int) -> None:
    rows = rows64(n, d, seed)
    sums = torch.cdist(rows, rows).sum(1)
    assert_close(torch.cdist(Medoid()(rows)[None], rows).sum(), sums.min())  # two rows may tie


@shapes
def test_centered_clipping(n: int, d: int, seed: int) -> None:
    rows = rows64(n, d, seed)
    start = rows64(1, d, seed + 1)[0]
    rule = CenteredClipping(radius=0.7, n_steps=4)
    assert_close(rule(rows), oracle.centered_clipping(rows, 0.7, 4, torch.zeros(d)))
    assert_close(rule(rows, reference=start), oracle.centered_clipping(rows, 0.7, 4, start))


def test_centered_clipping_moves_with_its_start() -> None:
    rows, start, shift = rows64(9, 4, 0), rows64(1, 4, 1)[0], 40 * rows64(1, 4, 2)[0]
    rule = CenteredClipping(radius=0.7)
    assert_close(rule(rows + shift, reference=start + shift), rule(rows, reference=start) + shift)


def test_norm_rules() -> None:
    rows = torch.tensor([[3.0], [-1.0], [2.0], [-50.0], [4.0]])
    assert NormFilter(n_bad=1)(rows).tolist() == [2.0]
    assert NormFilter(bad_fraction=0.2)(rows).tolist() == [2.0]
    assert NormFilter(bad_fraction=0.3)(rows).tolist() == [2.0]  # ceil(0.7 * 5) = 4 rows are kept
    assert NormTrim(bad_fraction=0.2)(rows).tolist() == [3.0]
    rejected = NormFilter(bad_fraction=0.2).aggregate(rows).rejected
    assert rejected.nonzero().flatten().tolist() == [3]


@few
@shapes
def test_spectral_filters(n: int, d: int, seed: int) -> None:
    rows = rows64(n, d, seed)
    assert_close(SpectralFilter(n_bad=2)(rows), oracle.spectral_filter(rows, 2))
    assert_close(CovarianceFilter(n_bad=2)(rows), oracle.covariance_filter(rows, 2))
    assert_close(CovarianceFilter()(rows), oracle.covariance_filter(rows, (n - 1) // 2))


def test_spectral_filter_stops_at_sigma() -> None:
    rows = gaussian(12, 4)
    assert SpectralFilter(n_bad=3, sigma=100.0).aggregate(rows).rejected.sum() == 0
    assert SpectralFilter(n_bad=3, sigma=1e-3).aggregate(rows).rejected.sum() == 3


def test_resilience_filter_drops_what_breaks_the_bound() -> None:
    rows = gaussian(20, 5)
    rows[:4] += 30.0
    result = ResilienceFilter(sigma=1.5).aggregate(rows)
    assert result.rejected[:4].all()
    assert result.outcome is Outcome.FINISHED
    assert float((result.vector - rows[4:].mean(0)).norm()) < 0.6


def test_resilience_filter_says_when_sigma_is_too_small() -> None:
    result = ResilienceFilter(sigma=1e-6).aggregate(gaussian(20, 5))
    assert result.outcome is Outcome.BOUND_NOT_MET
    assert bool((~result.rejected).sum() >= 10)


def test_radius_filter_keeps_rows_near_the_vector_median() -> None:
    rows = torch.tensor([[0.0], [1.0], [2.0], [5.5], [100.0]])
    for radius, expected in ((1.0, [3, 4]), (2.5, [4])):
        rejected = RadiusFilter(radius=radius).aggregate(rows).rejected
        assert rejected.nonzero().flatten().tolist() == expected


def test_majority_vote_recovers_the_mean_of_the_true_rows() -> None:
    true = gaussian(4, 10)
    rows = true.repeat_interleave(5, dim=0)
    for group in range(4):
        rows[5 * group + group] = 1e30
        rows[5 * group + (group + 2) % 5] = float("nan")
    result = MajorityVote(group_size=5).aggregate(rows)
    torch.testing.assert_close(result.vector, true.mean(0))
    assert result.rejected.sum() == 8


def test_majority_vote_names_the_group_without_majority() -> None:
    rows = gaussian(2, 4).repeat_interleave(3, dim=0)
    rows[4], rows[5] = 1.0, 2.0
    with pytest.raises(NoMajorityError, match=r"got none in group 1 \(counting from 0\)"):
        MajorityVote(group_size=3)(rows)
    with pytest.raises(ValueError, match=r"whole groups of 3, got 5 rows"):
        MajorityVote(group_size=3)(rows[:5])
    with pytest.raises(ValueError, match=r"`group_size` must be odd"):
        MajorityVote(group_size=4)


def test_majority_vote_tells_one_bit_apart() -> None:
    rows = torch.ones(3, 70_000)
    rows[1, -1] = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))
    assert MajorityVote(group_size=3).aggregate(rows).rejected.tolist() == [False, True, False]


def test_sign_majority_breaks_no_draw() -> None:
    assert SignMajority()(torch.tensor([[1.0, 5.0], [-9.0, 2.0]])).tolist() == [0.0, 1.0]


def test_zeno_ranks_by_penalized_descent() -> None:
    rows = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 30.0], [-1.0, 0.0]])
    score = lambda direction: float(direction.sum())  # noqa: E731
    assert Zeno(n_bad=3)(rows, score=score).tolist() == [0.0, 30.0]
    assert Zeno(n_bad=3, penalty=0.1)(rows, score=score).tolist() == [2.0, 0.0]
    assert (
        Zeno(n_bad=1)(rows, score=lambda direction: math.nan if direction[1] > 0 else 1.0).norm()
        < 3
    )


@shapes
def test_trusted_reference(n: int, d: int, seed: int) -> None:
    rows = rows64(n, d + 1, seed)
    reference = rows[:3].mean(0)
    assert_close(
        TrustedReference()(rows, reference=reference), oracle.trusted_reference(rows, reference)
    )


def test_trusted_reference_without_friends_is_zero() -> None:
    rows = torch.tensor([[-1.0, 0.0], [0.0, 0.0]])
    assert TrustedReference()(rows, reference=torch.tensor([1.0, 0.0])).tolist() == [0.0, 0.0]


@few
@shapes
def test_wrappers_equal_the_rule_on_mixed_rows(n: int, d: int, seed: int) -> None:
    rows = rows64(n, d, seed)
    # Mixtures often coincide, so rules that pick rows would meet ties; these do not pick.
    for inner in (
        TrimmedMean(n_bad=2),
        Mean(),
        CenteredClipping(radius=0.3),
        CovarianceFilter(n_bad=0),
    ):
        mixed = oracle.nearest_neighbor_mixing(rows, 2)
        assert_close(NearestNeighborMixing(n_bad=2, rule=inner)(rows), inner(mixed))
        clipped = oracle.norm_clipping(rows, 1.1)
        assert_close(NormClipping(radius=1.1, rule=inner)(rows), inner(clipped))
        # The whole pipeline: mixed first, then clipped.
        both = NearestNeighborMixing(n_bad=2, rule=NormClipping(radius=0.4, rule=inner))
        assert_close(both(rows), inner(oracle.norm_clipping(mixed, 0.4)))


def test_adaptive_clipping_uses_the_stated_norm() -> None:
    rows = torch.tensor([[1.0], [2.0], [4.0], [8.0], [16.0]])
    # floor(2 * 1 / 5 * 4) = 1 row is clipped, to the second largest norm
    assert NormClipping(n_bad=1, rule=Mean())(rows).tolist() == [
        pytest.approx((1 + 2 + 4 + 8 + 8) / 5)
    ]


def test_bucketing_averages_in_the_drawn_buckets() -> None:
    rows = rows64(7, 3, 0)
    order = torch.randperm(7, generator=stream(1, "buckets"))
    means = torch.stack([rows[bucket].mean(0) for bucket in torch.split(order, 2)])
    rule = Bucketing(bucket_size=2, rule=CoordinateMedian())
    assert_close(rule(rows, generator=stream(1, "buckets")), CoordinateMedian()(means))
    drawn = {tuple(rule(rows, generator=stream(seed, "buckets")).tolist()) for seed in range(20)}
    assert len(drawn) > 1


def test_bucketing_hands_row_weights_on() -> None:
    rows = rows64(7, 3, 0)
    weights = torch.tensor([1.0, 2, 3, 4, 5, 6, 7])
    rule = Bucketing(bucket_size=2, rule=Mean())
    weighted = (weights.double() @ rows) / weights.sum()
    assert_close(rule(rows, row_weights=weights, generator=stream(1, "buckets")), weighted)


def test_majority_vote_leaves_out_a_group_that_agrees_on_nan() -> None:
    rows = gaussian(5, 4).repeat_interleave(3, dim=0)
    rows[3:6] = float("nan")
    result = MajorityVote(group_size=3).aggregate(rows)
    torch.testing.assert_close(result.vector, rows[[0, 6, 9, 12]].mean(0))
    assert result.rejected.tolist() == [False] * 3 + [True] * 3 + [False] * 9


def test_weighted_norm_rules_drop_by_weight() -> None:
    rows = torch.tensor([[3.0], [-1.0], [2.0], [-50.0], [4.0]])
    weights = torch.tensor([1.0, 1.0, 1.0, 3.0, 4.0])
    assert NormFilter(bad_fraction=0.3)(rows, row_weights=weights).tolist() == [
        pytest.approx(20 / 7)
    ]
    assert NormFilter(bad_fraction=0.2).aggregate(rows, row_weights=weights).rejected.sum() == 0
    rejected = NormTrim(bad_fraction=0.3).aggregate(rows, row_weights=weights).rejected
    assert rejected.tolist() == [True, True, True, True, False]


@pytest.mark.parametrize(
    "rule",
    [Bulyan(n_bad=1), Krum(n_bad=0), RadiusFilter(radius=1.0), RadiusFilter(), Medoid()],
    ids=repr,
)
@given(n=st.integers(7, 12), d=st.integers(1, 6), seed=st.integers(0, 999))
def test_ties_do_not_make_the_order_of_rows_matter(
    rule: Aggregator, n: int, d: int, seed: int
) -> None:
    rows = rows64(n, d, seed)
    if d == 1 and n % 2 == 0:
        return  # two middle rows of a line may tie in every respect
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    assert_close(rule(rows[order]), rule(rows))


def test_medoid_sees_the_direction_of_far_rows() -> None:
    assert Medoid()(torch.tensor([[0.0], [1.0], [2.0], [3.0], [4.0], [1e6], [1e6]])).tolist() == [
        3.0
    ]


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6, 1e10, 1e25])
def test_trusted_reference_is_never_longer_than_the_reference(size: float) -> None:
    """Also if all rows are huge and two are equal, so that they are measured from one of them."""
    for seed in range(20):
        reference = gaussian(1, 6, seed)[0]
        rows = size * gaussian(5, 6, seed + 1)
        rows = torch.cat([rows, rows[:1]])
        vector = TrustedReference()(rows, reference=reference)
        assert float(vector.norm()) <= float(reference.norm()) * (1 + 1e-5)
        torch.testing.assert_close(
            vector.double(), oracle.trusted_reference(rows, reference), rtol=1e-4, atol=1e-5
        )


def test_zeno_behind_a_wrapper_knows_of_lost_rows() -> None:
    rule = NormClipping(radius=1.0, rule=Zeno(n_bad=2))
    assert rule(torch.tensor([[1.0], [2.0], [math.nan]]), score=lambda direction: 1.0).tolist() == [
        1.0
    ]


def test_extreme_parameters() -> None:
    rows = rows64(8, 3, 0)
    assert_close(SpectralFilter(n_bad=2, sigma=1e200)(rows), rows.mean(0))
    assert_close(ResilienceFilter(sigma=1e200)(rows), rows.mean(0))
    assert bool(torch.isfinite(NormTrim(bad_fraction=0.4999999998)(gaussian(2, 3))).all())


def test_adaptive_clipping_counts_exactly() -> None:
    """floor(2 f (n - f) / n) of 242 rows with 33 bad ones is 57 exactly; floating point says 56."""
    rows = torch.arange(242, 0, -1).double()[:, None]
    clipped = rows.clamp(max=float(rows[57]))
    assert_close(NormClipping(n_bad=33, rule=Mean())(rows), clipped.mean(0))


def test_an_error_inside_the_score_is_not_hidden() -> None:
    def broken(direction: Tensor) -> float:
        raise TypeError("my own mistake")

    with pytest.raises(TypeError, match="my own mistake"):
        Zeno(n_bad=1)(rows64(3, 2, 0), score=broken)
    with pytest.raises(ValueError, match=r"`score` must return a number, got NoneType\."):
        Zeno(n_bad=1)(rows64(3, 2, 0), score=cast(Any, lambda direction: None))


def test_a_wrapper_blames_nobody_whom_its_rule_does_not_blame() -> None:
    rows = torch.tensor([[1.0, 1], [1, -1], [-1, 1], [-1, -1], [0.1, 0.05]])
    assert not NormClipping(radius=9.0, rule=GeometricMedian()).aggregate(rows).rejected.any()
    rows[0] = math.nan
    assert (
        NormClipping(radius=9.0, rule=GeometricMedian()).aggregate(rows).rejected.tolist()
        == [True] + [False] * 4
    )


@pytest.mark.parametrize("shift", [0.0, 1e4])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_radius_filter_without_a_rejection_has_the_bits_of_the_mean(
    shift: float, scale: float
) -> None:
    rows = (gaussian(9, 500) + shift) * scale
    eta = torch.rand(9, generator=stream(3, "weights"), dtype=torch.float64) + 0.5
    assert torch.equal(RadiusFilter()(rows), Mean()(rows))
    assert torch.equal(RadiusFilter()(rows, row_weights=eta), Mean()(rows, row_weights=eta))


def test_radius_filter_leaves_out_what_is_beyond_its_reach() -> None:
    rows = torch.tensor([[0.0], [1.0], [-1.0], [3.9], [4.1]])
    assert RadiusFilter().aggregate(rows).rejected.tolist() == [False] * 4 + [True]
    assert RadiusFilter(reach=2.5).aggregate(rows).rejected.tolist() == [False] * 3 + [True] * 2
