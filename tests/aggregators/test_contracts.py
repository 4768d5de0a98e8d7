"""What every rule promises, run on every rule."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from holdfast.aggregators import CoordinateAggregator, Wrapper, rules
from holdfast.seeds import stream
from tests.aggregators.cases import CASES, TOLERANCE, Case, N
from tests.samples import HOSTILE, common, gaussian

D = 23
AWAY = 20.0
"""Honest rows of the breakdown contract are this far from zero in every coordinate, so that returning zero is no answer."""
every_rule = pytest.mark.parametrize("case", CASES, ids=str)


def check_trait(case: Case, trait: str, is_so: bool) -> None:
    """The trait holds, or the rule declares that it cannot, and then it really does not."""
    if trait in case.lacks:
        assert not is_so, f"{case} claims to lack {trait} ({case.lacks[trait]}), but has it here"
    else:
        assert is_so, f"{case} breaks {trait}"


def close(a: Tensor, b: Tensor, scale: float = 1.0) -> bool:
    return bool((a.double() - b.double()).norm() <= TOLERANCE[a.dtype] * scale * a.numel() ** 0.5)


def test_every_rule_has_a_case() -> None:
    assert {part.split("(")[0].strip() for case in CASES for part in case.text.split("|")} == set(
        rules.names
    )


@every_rule
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
def test_keeps_shape_dtype_and_device(case: Case, dtype: torch.dtype) -> None:
    rows = case.rows(N, D, dtype=dtype)
    vector = case.call(rows)
    assert vector.shape == (D,)
    assert vector.dtype == dtype
    assert vector.device == rows.device


@every_rule
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_agrees_across_dtypes(case: Case, dtype: torch.dtype) -> None:
    rows = case.rows(N, D, dtype=dtype)
    assert close(case.call(rows).double().to(dtype), case.call(rows.double()))


@every_rule
def test_leaves_its_input_untouched(case: Case) -> None:
    rows = case.rows(N, D)
    before = rows.clone()
    case.call(rows)
    assert torch.equal(rows, before)


@every_rule
def test_is_deterministic(case: Case) -> None:
    rows = case.rows(N, D)
    assert torch.equal(case.call(rows), case.call(rows))


@every_rule
@pytest.mark.parametrize("seed", range(3))
def test_permutation(case: Case, seed: int) -> None:
    rows = case.rows(N, D, seed)
    order = torch.randperm(N, generator=stream(seed, "order"))
    try:
        is_so = close(case.call(rows[order], rows), case.call(rows))
    except ValueError:  # a repetition code whose groups were torn apart
        is_so = False
    check_trait(case, "permutation", is_so)


@every_rule
def test_translation(case: Case) -> None:
    rows = case.rows(N, D, dtype=torch.float64)
    shift = 40 * gaussian(1, D, seed=9, dtype=torch.float64)
    check_trait(case, "translation", close(case.call(rows + shift), case.call(rows) + shift[0]))


@every_rule
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_scale(case: Case, dtype: torch.dtype) -> None:
    rows = case.rows(N, D, dtype=dtype)
    plain = case.call(rows)
    scales = (1e-6, 1e6, 2.0**-100, 2.0**100)
    check_trait(case, "scale", all(close(case.call(c * rows) / c, plain) for c in scales))


@every_rule
def test_consensus(case: Case) -> None:
    rows = gaussian(1, D).expand(N, D)
    check_trait(case, "consensus", close(case.call(rows), rows[0]))


@every_rule
def test_consensus_on_zero(case: Case) -> None:
    assert torch.equal(case.call(torch.zeros(N, D)), torch.zeros(D))


@every_rule
@pytest.mark.parametrize("hostile", HOSTILE)
def test_breakdown(case: Case, hostile: str) -> None:
    """As many bad rows as the rule claims to resist leave it near the honest ones, whatever they hold."""
    rows = case.rows(N, D) + AWAY
    n_bad = min(case.rule.n_resisted(N), N // 2)
    honest = rows[n_bad:]
    bad = torch.cat([HOSTILE[hostile](rows[:n_bad]), honest])
    vector = case.call(bad, honest)
    assert bool(torch.isfinite(vector).all())
    if "signs" in case.lacks.get("consensus", ""):
        assert torch.equal(vector, torch.ones(D))  # all honest rows agree on the sign
        return
    # A rule that measures from the origin may be deceived by as much as an honest row is long, others by the spread alone.
    allowed = (
        honest.norm(dim=1).max()
        if "origin" in str(case.lacks) or "fixed" in str(case.lacks)
        else 2 * (honest - honest.mean(0)).norm(dim=1).max()
    )
    expected = honest.mean(0) * (2 if case.text == "trusted-reference" else 1)
    assert float((vector - expected).norm()) <= float(allowed)


@every_rule
@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_stays_finite_with_one_hostile_row(case: Case, hostile: str, dtype: torch.dtype) -> None:
    rows = case.rows(N, D, dtype=dtype)
    bad = torch.cat([rows[:-1], HOSTILE[hostile](rows[-1:])])
    assert bool(torch.isfinite(case.call(bad, rows)).all())


def test_mean_is_carried_away() -> None:
    rows = gaussian(N, D)
    rows[0] = 1e30
    mean = next(case for case in CASES if case.text == "mean")
    check_trait(mean, "breakdown", bool(mean.call(rows).norm() < 1e3))


@every_rule
def test_weights_reproduce_the_vector(case: Case) -> None:
    rows = case.rows(N, D, dtype=torch.float64)
    result = case.rule.aggregate(rows, **case.extras(rows))
    if result.weights is None:
        inner = case.rule
        while isinstance(inner, Wrapper):
            inner = inner.aggregator
        assert isinstance(inner, CoordinateAggregator) or inner.name == "bulyan"
        return
    assert result.weights.shape == (N,)
    assert bool((result.weights >= 0).all())
    start = (
        result.reference_weight * case.extras(rows)["reference"] if result.reference_weight else 0.0
    )
    assert torch.allclose(result.weights @ rows + start, result.vector, atol=1e-10)
    assert bool((result.weights[result.rejected] == 0).all())


@every_rule
def test_equal_row_weights_are_no_weights(case: Case) -> None:
    rows = case.rows(N, D)
    if "row_weights" not in case.rule.takes:
        with pytest.raises(ValueError, match=r"`row_weights` must be left out"):
            case.rule(rows, row_weights=torch.ones(N), **case.extras(rows))
        return
    weighted = case.rule(rows, row_weights=torch.full((N,), 0.3), **case.extras(rows))
    assert torch.equal(weighted, case.call(rows))


@every_rule
def test_rows_of_weight_zero_have_no_part(case: Case) -> None:
    if "row_weights" not in case.rule.takes:
        return
    rows = case.rows(N + 3, D)
    weights = torch.ones(N + 3)
    weights[-3:] = 0
    rows[-1] = float("nan")
    result = case.rule.aggregate(rows, row_weights=weights, **case.extras(rows[:N]))
    assert torch.equal(result.vector, case.call(rows[:N]))
    assert result.rejected[-3:].all()


@every_rule
def test_names_rows_that_are_not_finite(case: Case) -> None:
    rows = case.rows(N, D)
    bad = rows.clone()
    bad[4, 3], bad[7, 0] = float("nan"), float("inf")
    rejected = case.rule.aggregate(bad, **case.extras(rows)).rejected
    assert rejected[4]
    assert rejected[7]


@every_rule
def test_refuses_too_few_rows(case: Case) -> None:
    n_needed = case.rule.n_needed
    rows = case.rows(max(n_needed, 1), D)
    if len(rows) % 3 == 0 or case.rows is gaussian:
        assert bool(torch.isfinite(case.call(rows)).all())
    if n_needed > 1:
        with pytest.raises(
            ValueError, match=rf"`rows` must have at least {n_needed} rows .*got {n_needed - 1}\."
        ):
            case.call(case.rows(n_needed - 1, D))


@every_rule
def test_limits_make_sense(case: Case) -> None:
    for n in range(case.rule.n_needed, 40):
        assert 0 <= case.rule.n_resisted(n) <= n


@every_rule
def test_json_round_trip(case: Case) -> None:
    rule = case.rule
    assert rules.from_json(json.loads(json.dumps(rules.to_json(rule)))) == rule
    assert rules.parse(rules.format(rule)) == rule
    assert hash(rules.parse(case.text)) == hash(rule)


@every_rule
def test_a_list_of_parameters_equals_the_matrix(case: Case) -> None:
    rows = case.rows(N, D, dtype=torch.float64)
    parts = [rows[:, :12].reshape(N, 3, 4), rows[:, 12], rows[:, 13:]]
    flat = case.rule(rows, **case.extras(rows))
    assert torch.allclose(case.rule(parts, **case.extras(rows)), flat, rtol=1e-9, atol=1e-9)


@every_rule
def test_rows_may_stand_in_any_order_in_memory(case: Case) -> None:
    rows = case.rows(N, D, dtype=torch.float64)
    plain = case.call(rows)
    assert torch.allclose(case.call(rows.T.contiguous().T), plain, atol=1e-9)
    assert torch.allclose(case.call(rows.repeat(2, 2)[:N, :D]), plain, atol=1e-9)
    spread = torch.zeros(N, 2 * D, dtype=torch.float64)
    spread[:, ::2] = rows
    assert torch.allclose(case.call(spread[:, ::2]), plain, atol=1e-9)


@every_rule
def test_one_column(case: Case) -> None:
    rows = case.rows(N, 1)
    assert bool(torch.isfinite(case.call(rows)).all())


@every_rule
def test_keeps_its_digits_when_rows_share_a_large_part(case: Case) -> None:
    """Float32 rows near 1e5 times their spread give what the same rows give in float64."""
    rows = (
        common(N // 3, D, 100000.0).repeat_interleave(3, dim=0)
        if case.rows is not gaussian
        else common(N, D, 100000.0)
    )
    rounding = 1e5 * 2.0**-22  # of the float32 result itself
    assert float((case.call(rows).double() - case.call(rows.double())).abs().max()) <= 4 * rounding


@every_rule
def test_gradients_do_not_flow(case: Case) -> None:
    rows = case.rows(N, D).requires_grad_()
    assert not case.rule(rows, **case.extras(rows.detach())).requires_grad


@settings(max_examples=150)
@given(
    case=st.sampled_from(CASES),
    n=st.integers(1, 40),
    d=st.integers(1, 60),
    dtype=st.sampled_from(list(TOLERANCE)),
    kinds=st.lists(st.sampled_from(sorted(HOSTILE)), min_size=1, max_size=3),
    seed=st.integers(0, 10_000),
)
def test_any_mixture_of_hostile_rows_is_survived(
    case: Case, n: int, d: int, dtype: torch.dtype, kinds: list[str], seed: int
) -> None:
    """Whatever a resisted number of rows hold, in any mixture, shape and dtype, the result is finite and the input untouched."""
    n = max(n, case.rule.n_needed)
    n += -n % 3 if case.rows is not gaussian else 0
    rows = case.rows(n, d, seed, dtype)
    n_bad = min(case.rule.n_resisted(n), (n - 1) // 2)
    bad = rows.clone()
    for i in range(n_bad):
        bad[i] = HOSTILE[kinds[i % len(kinds)]](rows[i : i + 1])[0]
    before = bad.clone()
    vector = case.call(bad, rows[n_bad:])
    assert bool(torch.isfinite(vector).all())
    assert torch.equal(bad.nan_to_num(1.5), before.nan_to_num(1.5))


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize(
    "text",
    [
        "geometric-median",
        "coordinate-median",
        "trimmed-mean(n_bad=45)",
        "covariance-filter",
        "medoid",
    ],
)
def test_breakdown_of_many_rows(text: str, hostile: str) -> None:
    """The same where the geometric median sweeps over the rows."""
    rows = gaussian(100, 200) + AWAY
    rows[:45] = HOSTILE[hostile](rows[:45])
    vector = rules.parse(text)(rows)
    assert float((vector - rows[45:].mean(0)).norm()) <= 30
