"""The contracts of all rules, run on every rule."""

import json
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.aggregators import (
    BadRowLimit,
    GeometricMedian,
    rules,
)
from holdfast.testing import check_rule
from holdfast.testing._rule_subject import HOSTILE
from tests.aggregators.cases import CASES, TOLERANCE, Case, N
from tests.loops import naming
from tests.samples import gaussian

D = 23
AWAY = 20.0
"""Distance of honest rows from zero in every coordinate, so that zero is a wrong answer."""
every_rule = pytest.mark.parametrize("case", CASES, ids=str)


@every_rule
def test_keeps_the_promises_of_all_rules(case: Case) -> None:
    check_rule(case.rule, lacks=case.lacks, rows=case.rows, arguments=case.extras)


def test_every_rule_has_a_case() -> None:
    parts = [part.strip() for case in CASES for part in case.text.split("|")]
    assert {part.split("(")[0] for part in parts} == set(rules.names)


def test_every_rule_with_a_number_of_bad_rows_has_a_case_with_a_fraction() -> None:
    limited = {name for name in rules.names if issubclass(rules[name], BadRowLimit)}
    with_fraction = re.findall(r"([\w-]+)\(bad_fraction", " ".join(map(str, CASES)))
    assert len(limited) == 14
    assert limited <= set(with_fraction)


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
def test_gradients_do_not_flow(case: Case) -> None:
    """Except through the geometric median: tests/geometry/test_implicit_gradient.py."""
    rows = case.rows(N, D).requires_grad_()
    flows = case.rule(rows, **case.extras(rows.detach())).requires_grad
    assert flows == isinstance(case.rule, GeometricMedian)


@settings(max_examples=150)
@given(
    case=st.sampled_from(CASES),
    n=st.integers(1, 25),  # with more rows, rules that try all subsets may refuse
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
