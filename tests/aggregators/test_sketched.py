"""Any rule in Gram space on a sketch of the rows."""

import pytest
import torch

from holdfast.aggregators import GeometricMedian, Sketched, rules
from holdfast.geometry import GramRows
from holdfast.seeds import stream
from tests.aggregators.cases import CASES, Case, N
from tests.geometry.test_sketched_rows import columns_of_many_sizes
from tests.samples import gaussian

RULES = ["geometric-median", "radius-filter", "multi-krum(n_bad=6)", "mixing(n_bad=6) | medoid"]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_the_sketched_rule_is_near_the_exact_one(rule: str, dtype: torch.dtype) -> None:
    rows = (1 + columns_of_many_sizes(15, 5000)).to(dtype)
    rows[:6] *= -100
    found = Sketched(fraction=0.1, rule=rule).aggregate(rows, generator=stream(0, "sketched"))
    exact, honest = rules.parse(rule)(rows.double()), rows[6:].double()
    assert found.vector.dtype == dtype
    assert found.weights is not None
    spread = float((honest - honest.mean(0)).norm(dim=1).mean())
    assert float((found.vector.double() - exact).norm()) < 1.5 * spread
    assert float(found.weights[:6].abs().sum()) < 0.01


def test_the_sketched_median_is_a_tenth_from_the_exact_one() -> None:
    rows = columns_of_many_sizes(15, 5000)
    rows[:6] *= -100
    found = Sketched(fraction=0.1, rule="geometric-median")(rows, generator=stream(0, "sketched"))
    exact = GeometricMedian()(rows)
    assert float((found - exact).norm()) < 0.1 * float(exact.norm())


def test_row_weights_and_whole_fractions() -> None:
    rows, weights, generator = gaussian(9, 500), torch.arange(9.0), torch.Generator()
    whole = Sketched(fraction=1.0, rule="geometric-median")
    found = whole(rows, row_weights=weights, generator=generator)
    assert found.equal(GeometricMedian()(rows, row_weights=weights))
    half = Sketched(fraction=0.5, rule="geometric-median")
    part = half.aggregate(rows, row_weights=weights, generator=generator)
    assert part.weights is not None
    assert float(part.weights[0]) == 0.0


def test_rows_that_agree_are_returned() -> None:
    rows = gaussian(1, 400).repeat(9, 1)
    for seed in range(5):
        rule = Sketched(fraction=0.02, tile=8, rule="geometric-median")
        found = rule(rows, generator=stream(seed, "agree"))
        torch.testing.assert_close(found, rows[0], rtol=1e-5, atol=1e-5)


def test_the_generator_of_the_call_advances_by_one_draw() -> None:
    """However many columns are drawn, so that holders of different columns stay in step."""
    states = []
    for d in (100, 5000):
        generator = stream(0, "shared")
        Sketched(fraction=0.1, rule="medoid")(gaussian(5, d), generator=generator)
        states.append(generator.get_state())
    assert states[0].equal(states[1])


@pytest.mark.parametrize("bad", [{"fraction": 0.0}, {"tile": "layer"}, {"rule": 3}], ids=str)
def test_bad_arguments(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"^`\w+` must .*, got"):
        Sketched(**{"rule": "medoid", **bad})  # type: ignore[arg-type]


def test_the_generator_must_be_given() -> None:
    with pytest.raises(ValueError, match=r"^`generator` must be given to Sketched"):
        Sketched(rule="medoid")(gaussian(3, 4))


@pytest.mark.parametrize(("rule", "shown"), [
    ("coordinate-median", r"CoordinateMedian\(\)"),
    ("trimmed-mean(n_bad=2)", r"TrimmedMean\(n_bad=2\)"),
    ("bulyan(n_bad=1)", r"Bulyan\(n_bad=1\)"),
    ("sketched | medoid", r"Sketched\(rule=Medoid\(\)\)"),
    ("mixing(n_bad=2) | sign-majority",
     r"NearestNeighborMixing\(n_bad=2, rule=SignMajority\(\)\)"),
])  # fmt: skip
def test_a_rule_that_reads_columns_is_refused_at_once(rule: str, shown: str) -> None:
    requirement = "read inner products or lengths only, because a sketch has no columns"
    with pytest.raises(ValueError, match=rf"^`rule` must {requirement}, got {shown}\.$"):
        Sketched(rule=rule)
    with pytest.raises(ValueError, match=rf"^`rule` must {requirement}, got {shown}\.$"):
        rules.parse(f"sketched | {rule}")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rules_say_whether_they_read_columns(case: Case) -> None:
    """Those that do refuse rows of which only inner products are known; the others take them."""
    rule, rows = case.rule, case.rows(N, 40, dtype=torch.float64)
    if rule.reads_columns:
        with pytest.raises(ValueError, match=r"^(Gram|Mixed)Rows cannot be read by column"):
            rule.aggregate(GramRows(rows @ rows.T), **case.extras(rows))
    elif not rule.takes & {"reference", "score"}:
        assert rule.aggregate(GramRows(rows @ rows.T), **case.extras(rows)).weights is not None
