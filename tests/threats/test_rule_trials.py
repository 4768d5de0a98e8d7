"""Trials of the rule in a few coordinates equal those on whole rows; searches find the maximum."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from holdfast.aggregators import Bucketing, GeometricMedian, rules
from holdfast.seeds import stream
from holdfast.threats import (
    Attack,
    AttackContext,
    InnerProduct,
    LittleIsEnough,
    RuleTrials,
    line_search,
)
from holdfast.threats._rule_trials import _reads_products_only, coordinates
from tests.aggregators.cases import CASES, N
from tests.aggregators.cases import Case as RuleCase
from tests.oracle import attacks as oracle
from tests.samples import common, gaussian
from tests.threats.cases import some_bad

D, N_BAD = 300, 4
MASK = some_bad(N, N_BAD)


def context_of(case: RuleCase, rows: Tensor) -> AttackContext:
    arguments = case.extras(rows[~MASK])
    return AttackContext(rows=rows, mask=MASK, rule=case.rule, rule_arguments=arguments)


BY_PRODUCTS = [case for case in CASES if _reads_products_only(case.rule)]


@pytest.mark.parametrize("case", BY_PRODUCTS, ids=str)
def test_trials_equal_the_rule_on_whole_rows(case: RuleCase) -> None:
    """For rows with a common part as large as their spread, and ten thousand times as large."""
    for ratio in (1.0, 1e4):
        rows = 1e3 * common(N, D, ratio, dtype=torch.float64)
        context, rule = context_of(case, rows), case.rule
        vectors = torch.stack([context.spread, context.mean])
        trials = RuleTrials(context, vectors)
        whole = RuleTrials(replace(context, rule=partial(rule)), vectors)
        assert whole.vectors.shape == (2, D)
        if "score" not in context.rule_arguments:
            assert trials.vectors.shape[1] <= N + 3
        for coefficients in (torch.tensor([-0.7, 0.1]), gaussian(N_BAD, 2)):
            got, wanted = trials.shift(coefficients), whole.shift(coefficients)
            size = float(wanted.norm()) + float(context.spread.norm())
            along = (trials.vectors @ got, whole.vectors @ wanted)
            assert float(got.norm()) == pytest.approx(float(wanted.norm()), abs=1e-5 * size)
            lengths = whole.vectors.norm(dim=1)
            assert bool(((along[0] - along[1]).abs() <= 1e-5 * size * lengths).all())


@given(st.integers(1, 12), st.integers(1, 40), st.integers(0, 50))
def test_coordinates_keep_all_inner_products(n: int, d: int, seed: int) -> None:
    vectors = gaussian(n, d, seed, torch.float64)
    points = coordinates(vectors)
    assert points.shape == (n, n)
    torch.testing.assert_close(points @ points.T, vectors @ vectors.T, rtol=1e-10, atol=1e-10)


def test_trials_do_not_draw_from_the_generator_of_the_rule() -> None:
    """All trials of one step see the same buckets."""
    generator, rows = stream(0, "buckets"), gaussian(N, D)
    before = generator.get_state()
    rule = Bucketing(bucket_size=2, rule=GeometricMedian())
    context = AttackContext(
        rows=rows, mask=MASK, rule=rule, rule_arguments={"generator": generator}
    )
    trials = RuleTrials(context, context.spread[None])
    first, second = (trials.shift(torch.tensor([-1.0])) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(generator.get_state(), before)


def test_half_precision_is_tried_within_its_range() -> None:
    rows = gaussian(N, D, dtype=torch.float16)
    seen = []

    def median(rows: Tensor) -> Tensor:
        seen.append(rows.clone())
        return rows.median(0).values

    context = AttackContext(rows=rows, mask=MASK, rule=median)
    RuleTrials(context, context.spread[None]).shift(torch.tensor([-1e6]))
    assert seen[0].dtype == torch.float16
    assert float(seen[0].abs().max()) == torch.finfo(torch.float16).max


SEARCHED: list[tuple[Callable[[float], float], float]] = [
    (lambda x: -((x - 3.3) ** 2), 3.3),
    (lambda x: -((x - 0.31) ** 2), 0.31),
    (lambda x: -((x - 1000.0) ** 2), 1000.0),
    (lambda x: x if x < 1.7 else 0.0, 1.7),  # a filter that rejects from 1.7 on
    (lambda x: 1.0 - x if x < 0.2 else 2.0 - abs(x - 0.6), 0.6),  # falls at first
    (lambda x: -x, 0.0),
    (lambda x: x if x < 5 else float("nan"), 5.0),
]


@pytest.mark.parametrize(("value", "wanted"), SEARCHED)
def test_line_search_finds_the_maximum(value: Callable[[float], float], wanted: float) -> None:
    tried: list[float] = []

    def recorded(factor: float) -> float:
        tried.append(factor)
        return value(factor)

    found = line_search(recorded)
    assert found == pytest.approx(wanted, rel=0.03)
    assert len(tried) <= 20
    assert min(tried) >= 0


def test_line_search_uses_all_trials_on_a_value_without_bound() -> None:
    assert line_search(lambda factor: factor, n_trials=12) == 256.0


RULES = ["mean", "geometric-median", "covariance-filter", "krum(n_bad=4)", "coordinate-median"]


@pytest.mark.parametrize("rule", RULES)
def test_optimized_attacks_do_the_harm_of_a_search_on_whole_rows(rule: str) -> None:
    apply = rules.parse(rule)
    for seed in range(3):
        rows = common(N, D, 0.5, seed, torch.float64)
        little, product = oracle.optimized(rows, MASK, apply)
        for attack, wanted in (
            (LittleIsEnough(z="optimized"), little),
            (InnerProduct(factor="optimized"), product),
        ):
            sent = attack(rows, MASK, rule=rule)
            assert bool((sent[MASK] == sent[MASK][0]).all())
            harm = oracle.harm(rows, MASK, sent[MASK][0], apply)
            assert harm == pytest.approx(wanted, rel=1e-3), (rule, seed, attack)


@pytest.mark.parametrize("rule", RULES)
def test_no_fixed_factor_that_was_tried_does_more_harm(rule: str) -> None:
    rows, apply = common(N, D, 0.5, 7), rules.parse(rule)

    def harm(attack: Attack) -> float:
        sent = attack(rows, MASK, rule=rule)
        return oracle.harm(rows, MASK, sent[MASK][0], apply)

    for factor in (0.25, 1.0, 2.0):
        fixed: list[Attack] = [LittleIsEnough(z=factor), InnerProduct(factor=factor)]
        best: list[Attack] = [LittleIsEnough(z="optimized"), InnerProduct(factor="optimized")]
        for one, optimized in zip(fixed, best, strict=True):
            assert harm(optimized) >= 0.999 * harm(one), (rule, one)
