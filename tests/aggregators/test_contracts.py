"""The contracts of all rules, run on every rule."""

import json
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from holdfast.aggregators import (
    BadRowLimit,
    CoordinateAggregator,
    GeometricMedian,
    Wrapper,
    rules,
)
from holdfast.seeds import stream
from tests.aggregators.cases import CASES, TOLERANCE, Case, N
from tests.loops import naming
from tests.samples import HOSTILE, common, gaussian

D = 23
AWAY = 20.0
"""Distance of honest rows from zero in every coordinate, so that zero is a wrong answer."""
every_rule = pytest.mark.parametrize("case", CASES, ids=str)


def check_trait(case: Case, trait: str, is_so: bool) -> None:
    """The trait holds, or the rule declares that it lacks it, and then it does."""
    if trait in case.lacks:
        assert not is_so, f"{case} claims to lack {trait} ({case.lacks[trait]}), but has it here"
    else:
        assert is_so, f"{case} breaks {trait}"


def close(a: Tensor, b: Tensor, scale: float = 1.0) -> bool:
    return bool((a.double() - b.double()).norm() <= TOLERANCE[a.dtype] * scale * a.numel() ** 0.5)


def test_every_rule_has_a_case() -> None:
    parts = [part.strip() for case in CASES for part in case.text.split("|")]
    assert {part.split("(")[0] for part in parts} == set(rules.names)


def test_every_rule_with_a_number_of_bad_rows_has_a_case_with_a_fraction() -> None:
    limited = {name for name in rules.names if issubclass(rules[name], BadRowLimit)}
    with_fraction = re.findall(r"([\w-]+)\(bad_fraction", " ".join(map(str, CASES)))
    assert len(limited) == 14
    assert limited <= set(with_fraction)


@every_rule
def test_keeps_shape_dtype_and_device(case: Case) -> None:
    for dtype in TOLERANCE:
        with naming(dtype):
            rows = case.rows(N, D, dtype=dtype)
            vector = case.call(rows)
            assert vector.shape == (D,)
            assert vector.dtype == dtype
            assert vector.device == rows.device


@every_rule
def test_agrees_across_dtypes(case: Case) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        with naming(dtype):
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
def test_permutation(case: Case) -> None:
    for seed in range(3):
        rows = case.rows(N, D, seed)
        order = torch.randperm(N, generator=stream(seed, "order"))
        try:
            is_so = close(case.call(rows[order], rows), case.call(rows))
        except ValueError:  # a repetition code whose groups were torn apart
            is_so = False
        with naming("seed", seed):
            check_trait(case, "permutation", is_so)


@every_rule
def test_translation(case: Case) -> None:
    rows = case.rows(N, D, dtype=torch.float64)
    shift = 40 * gaussian(1, D, seed=9, dtype=torch.float64)
    check_trait(case, "translation", close(case.call(rows + shift), case.call(rows) + shift[0]))


@every_rule
def test_scale(case: Case) -> None:
    scales = (1e-6, 1e6, 2.0**-100, 2.0**100)
    for dtype in (torch.float32, torch.float64):
        rows = case.rows(N, D, dtype=dtype)
        plain = case.call(rows)
        with naming(dtype):
            check_trait(case, "scale", all(close(case.call(c * rows) / c, plain) for c in scales))


@every_rule
def test_consensus(case: Case) -> None:
    rows = gaussian(1, D).expand(N, D)
    check_trait(case, "consensus", close(case.call(rows), rows[0]))


@every_rule
def test_consensus_on_zero(case: Case) -> None:
    assert torch.equal(case.call(torch.zeros(N, D)), torch.zeros(D))


@every_rule
def test_breakdown(case: Case) -> None:
    """The number of bad rows that the rule resists leaves it near the honest ones."""
    rows = case.rows(N, D) + AWAY
    n_bad = min(case.rule.n_resisted(N), N // 2)
    honest = rows[n_bad:]
    # A rule that measures from the origin may move by the length of an honest row, others by the
    # spread of the honest rows.
    allowed = (
        honest.norm(dim=1).max()
        if "origin" in str(case.lacks) or "fixed" in str(case.lacks)
        else 2 * (honest - honest.mean(0)).norm(dim=1).max()
    )
    expected = honest.mean(0) * (2 if case.text == "trusted-reference" else 1)
    for kind, corrupt in HOSTILE.items():
        with naming(kind):
            vector = case.call(torch.cat([corrupt(rows[:n_bad]), honest]), honest)
            assert bool(torch.isfinite(vector).all())
            if "signs" in case.lacks.get("consensus", ""):
                assert torch.equal(vector, torch.ones(D))  # all honest rows agree on the sign
            else:
                assert float((vector - expected).norm()) <= float(allowed)


@every_rule
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_stays_finite_with_one_hostile_row(case: Case, dtype: torch.dtype) -> None:
    rows = case.rows(N, D, dtype=dtype)
    for kind, corrupt in HOSTILE.items():
        with naming(kind):
            bad = torch.cat([rows[:-1], corrupt(rows[-1:])])
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
            inner = inner.inner
        assert isinstance(inner, CoordinateAggregator) or inner.name == "bulyan"
        return
    assert result.weights.shape == (N,)
    assert bool((result.weights >= 0).all())
    combined = result.weights @ rows
    if result.reference_weight:
        combined += result.reference_weight * case.extras(rows)["reference"]
    assert torch.allclose(combined, result.vector, atol=1e-10)
    assert bool((result.weights[result.rejected] == 0).all())


@every_rule
def test_equal_row_weights_are_no_weights(case: Case) -> None:
    rows = case.rows(N, D)
    if "row_weights" not in case.rule.takes:
        with pytest.raises(ValueError, match=r"^`row_weights` is not accepted by \w+\("):
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
        message = rf"`rows` must have at least {n_needed} rows .*got {n_needed - 1}\."
        with pytest.raises(ValueError, match=message):
            case.call(case.rows(n_needed - 1, D))


@every_rule
def test_is_defined_for_every_larger_number_of_rows(case: Case) -> None:
    """A fraction of the rows is a number that grows with them."""
    if "minimum-diameter" in case.text or "minimum-variance" in case.text:
        return  # limited by its cost
    for n in range(case.rule.n_needed, 40):
        with naming(n, "rows"):
            assert 0 <= case.rule.n_resisted(n) <= n
            if n % 3 == 0 or case.rows is gaussian:
                assert bool(torch.isfinite(case.call(case.rows(n, 5))).all())


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
    if "digits" in case.lacks:
        pytest.skip(case.lacks["digits"])
    rows = common(N, D, 1e5)
    if case.rows is not gaussian:
        rows = common(N // 3, D, 1e5).repeat_interleave(3, dim=0)
    rounding = 1e5 * 2.0**-22  # of the float32 result itself
    assert float((case.call(rows).double() - case.call(rows.double())).abs().max()) <= 4 * rounding


@every_rule
def test_gradients_do_not_flow(case: Case) -> None:
    """Except through the geometric median: tests/geometry/test_implicit_gradient.py."""
    rows = case.rows(N, D).requires_grad_()
    flows = case.rule(rows, **case.extras(rows.detach())).requires_grad
    assert flows == isinstance(case.rule, GeometricMedian)


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
    """The result is finite and the input untouched, whatever a resisted number of rows hold."""
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


@pytest.mark.parametrize(
    "text",
    [
        "geometric-median",
        "coordinate-median",
        "trimmed-mean(n_bad=45)",
        "trimmed-mean(bad_fraction=0.45)",
        "covariance-filter",
        "medoid",
    ],
)
def test_breakdown_of_many_rows(text: str) -> None:
    """The same where the geometric median sweeps over the rows."""
    for kind, corrupt in HOSTILE.items():
        rows = gaussian(100, 200) + AWAY
        rows[:45] = corrupt(rows[:45])
        with naming(kind):
            vector = rules.parse(text)(rows)
            assert float((vector - rows[45:].mean(0)).norm()) <= 30
