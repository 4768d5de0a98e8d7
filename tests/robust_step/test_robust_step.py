"""Aggregate, then deliver: nothing is lost, whatever the rates, units and selectors."""

import pytest
import torch
from torch import Tensor

from holdfast import RobustStep, bgmd
from holdfast.errors import NonFiniteMemoryError
from holdfast.robust_step import deliver
from holdfast.selectors import NormSampling, Selector, TopNorm
from tests.oracle import robust_step as oracle
from tests.robust_step.steps import SELECTORS, D, N, every_selector, run, seeded
from tests.samples import gaussian

BLOCKS = [selector for selector in SELECTORS if not selector.takes_everything]
RATES = [0.1, 0.1, 0.5, 0.01, 1e-6, 2.0]


@every_selector
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_delivery_splits_a_vector_to_the_bit(selector: Selector, dtype: torch.dtype) -> None:
    for seed in range(4):
        total = gaussian(1, D, seed, dtype)[0]
        found = deliver(total.clone(), selector, (200, 30), step=seed, generator=seeded())
        later = torch.zeros_like(total) if found.later is None else found.later
        assert (found.now + later).equal(total)
        assert later[found.block.columns].count_nonzero() == 0
        assert oracle.remainder(found.now, found.block.columns).count_nonzero() == 0
        share = float(later.double().square().sum() / total.double().square().sum())
        assert found.residual == pytest.approx(share, rel=1e-5, abs=1e-12)


@pytest.mark.parametrize(
    "kind", ["normal", "heavy tails", "equal", "signs", "few", "zero", "periodic"]
)
def test_delivery_of_many_single_columns(kind: str) -> None:
    """A sampled threshold takes about k columns, and never another one than the largest."""
    d, k = 200_003, 20_000
    normal = gaussian(1, d)[0]
    total = {
        "normal": normal,
        "heavy tails": normal**9,
        "equal": torch.ones(d),
        "signs": normal.sign(),
        "few": torch.zeros(d).index_fill_(0, torch.arange(50), 3.0),
        "zero": torch.zeros(d),
        # As the stride of the sample, which then sees nothing of the large entries.
        "periodic": normal + 100.0 * (torch.arange(d) % 12 == 5),
    }[kind]
    selector = TopNorm(fraction=0.1, tile=1)
    found = deliver(total.clone(), selector, (d,), step=0, generator=seeded())
    assert found.later is not None
    assert (found.now + found.later).equal(total)
    assert float(found.now.abs()[found.block.columns].min()) >= float(found.later.abs().max())
    assert 0.9 * k <= len(found.block) <= 1.1 * k


@every_selector
@pytest.mark.parametrize("units", ["parameter", "gradient"])
@pytest.mark.parametrize("rule", ["geometric-median", "coordinate-median", "mean"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_nothing_is_lost_to_the_bit(
    selector: Selector, units: str, rule: str, dtype: torch.dtype
) -> None:
    """The rate times the direction, plus what is carried, is the rate times the total."""
    step = RobustStep(rule, selector=selector, units=units)  # type: ignore[arg-type]
    before = torch.zeros(D, dtype=dtype)
    for seed, lr in enumerate(RATES):
        rate = lr if units == "parameter" else 1.0
        result = step(gaussian(N, D, seed, dtype), lr=lr)
        total = torch.add(result.aggregate.vector, before, alpha=1.0 / rate)
        torch.testing.assert_close(
            total.double(),
            oracle.augmented(result.aggregate.vector, before, rate),
            rtol=1e-5,
            atol=1e-6 * float(total.abs().max()),
        )
        carried = step.state_dict()["carried"]
        before = torch.zeros(D, dtype=dtype) if carried is None else carried
        assert before.dtype == dtype
        assert (rate * result.direction + before).equal(rate * total)
        assert before[result.block.columns].count_nonzero() == 0
        assert result.carried_norm == pytest.approx(float(before.norm()), rel=1e-5)


def test_the_aggregate_is_the_rules_own() -> None:
    """What is carried never reaches the rule, so it is as robust with a block as without."""
    for selector in BLOCKS:
        step = RobustStep("radius-filter", selector=selector)
        for seed in range(3):
            rows = gaussian(N, D, seed)
            rows[:5] *= -100
            result = step(rows, lr=0.1)
            expected = step.rule.aggregate(rows)
            assert result.aggregate.vector.equal(expected.vector)
            assert result.rejected.tolist() == [True] * 5 + [False] * 10


def test_a_translation_equivariant_rule_may_see_what_is_carried_or_not() -> None:
    """The total is the aggregate of the rows with what is carried added to each: the paper's."""
    step, before, lr = RobustStep("geometric-median", selector=TopNorm(fraction=0.1)), None, 0.1
    for seed in range(5):
        rows = gaussian(N, D, seed, torch.float64)
        result = step(rows, lr=lr)
        total = step.rule(oracle.augmented(rows, before, lr))
        columns = result.block.columns
        torch.testing.assert_close(result.direction[columns], total[columns], rtol=1e-5, atol=1e-5)
        before = step.state_dict()["carried"]
        torch.testing.assert_close(
            before, lr * oracle.remainder(total, columns), rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("tile", [1, 8])
def test_the_largest_entries_of_the_total_are_delivered(tile: int) -> None:
    step, before = RobustStep("mean", selector=TopNorm(fraction=0.2, tile=tile)), torch.zeros(240)
    for seed in range(4):
        result = step(gaussian(N, 240, seed), lr=0.5)
        total = result.aggregate.vector + before / 0.5
        norms = total.view(-1, tile).norm(dim=1)
        expected = norms.topk(48 // tile).indices.sort().values
        assert result.block.tiles.equal(expected)
        before = step.state_dict()["carried"]


def test_every_column_is_delivered_in_time() -> None:
    """What waits grows until it is among the largest: no column is left out for good."""
    step, vector = bgmd(fraction=0.1), torch.linspace(1.0, 3.0, 50).repeat(5, 1)
    seen = torch.zeros(50)
    for _ in range(40):
        seen[step(vector, lr=0.1).block.columns] += 1
    assert bool((seen >= 1).all())
    assert float(seen[-1]) > 1.5 * float(seen[0])


@pytest.mark.parametrize("selector", BLOCKS, ids=repr)
def test_at_a_rate_of_zero_what_was_owed_stays(selector: Selector) -> None:
    step = RobustStep("geometric-median", selector=selector)
    run(step, 3)
    before = step.state_dict()["carried"]
    rows = gaussian(N, D, 9, torch.float64)
    # So small a rate counts as zero: what is owed could not be written as a gradient.
    for lr in (0.0, 1e-300, torch.zeros(D)):
        result = step(rows, lr=lr)
        assert step.state_dict()["carried"].equal(before)
        columns = result.block.columns
        assert result.direction[columns].equal(result.aggregate.vector[columns])
    assert step.n_steps == 6


def test_every_column_may_have_its_own_rate() -> None:
    """Equal rates are the number; where the rate is zero, what is carried stays as it is."""
    single, many = (
        RobustStep("geometric-median", selector=NormSampling(fraction=0.3, tile=16))
        for _ in range(2)
    )
    for seed in range(4):
        rows = gaussian(N, D, seed, torch.float64)
        a, b = single(rows, lr=0.2), many(rows, lr=torch.full((D,), 0.2, dtype=torch.float64))
        torch.testing.assert_close(a.direction, b.direction)
    before = many.state_dict()["carried"]
    rates = torch.full((D,), 0.3, dtype=torch.float64)
    rates[:100] = 0.0
    result = many(gaussian(N, D, 9, torch.float64), lr=rates)
    after = many.state_dict()["carried"]
    assert after[:100].equal(before[:100])
    moved = result.block.columns[result.block.columns >= 100]
    assert after[moved].count_nonzero() == 0


def test_a_rate_too_small_for_one_column_concerns_only_that_column() -> None:
    step, rates = bgmd(fraction=0.1), torch.full((40,), 0.1)
    rates[:5] = 1e-40
    for seed in range(3):
        step(gaussian(N, 40, seed), lr=rates)
    kept = step.state_dict()["carried"]
    assert kept[:5].count_nonzero() == 0
    assert kept[5:].count_nonzero() > 20


@pytest.mark.parametrize("lr", [1e-38, 1e-40, 1e-300, 5e-324])
def test_rates_that_hardly_exist(lr: float) -> None:
    step = bgmd(fraction=0.2)
    for seed in range(3):
        assert bool(torch.isfinite(step(gaussian(N, D, seed), lr=lr).direction).all())


def test_a_direction_that_does_not_fit_the_dtype_stops_the_step() -> None:
    step = bgmd(fraction=0.25)
    rows = gaussian(9, 40, dtype=torch.float16)
    step(rows, lr=1.0)
    before = step.state_dict()["carried"]
    message = r"^`direction` must fit torch.float16, got entries beyond its range\.$"
    with pytest.raises(NonFiniteMemoryError, match=message):
        step(rows, lr=1e-6)
    assert step.state_dict()["carried"].equal(before)


def test_gradient_units_need_no_rate() -> None:
    rate_free, with_one = bgmd(fraction=0.2, units="gradient"), bgmd(fraction=0.2)
    for seed in range(5):
        rows = gaussian(N, D, seed)
        assert rate_free(rows).direction.equal(with_one(rows, lr=1.0).direction)
    assert rate_free(gaussian(N, D), lr=0.3).carried_norm > 0  # a rate does no harm


@pytest.mark.parametrize("selector", BLOCKS, ids=repr)
def test_what_is_owed_does_not_depend_on_later_rates(selector: Selector) -> None:
    """Rows that agree: plain SGD moves by the sum of the rates, less what is still owed."""
    step, vector = RobustStep("mean", selector=selector), gaussian(1, 240, dtype=torch.float64)
    rates = [0.1, 0.7, 0.01, 0.3, 0.2, 0.05]
    moved = torch.zeros(240, dtype=torch.float64)
    for lr in rates:
        moved += lr * step(vector.repeat(5, 1), lr=lr).direction
    torch.testing.assert_close(moved + step.state_dict()["carried"], sum(rates) * vector[0])


def test_steps_within_autocast_are_as_exact_as_outside() -> None:
    rows: Tensor = gaussian(N, D)
    outside = bgmd()(rows, lr=0.1).direction
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert bgmd()(rows, lr=0.1).direction.equal(outside)


def test_a_whole_block_leaves_nothing_also_with_a_rate_per_column() -> None:
    rates = torch.tensor([0.5, 0.5, 0.5, 0.0])
    first = RobustStep("mean", selector=TopNorm(count=2, tile=1))
    first(torch.ones(3, 4), lr=rates)
    whole = RobustStep("mean", selector=TopNorm(fraction=1.0, tile=1))
    whole.load_state_dict(first.state_dict())
    result = whole(torch.ones(3, 4), lr=rates)
    assert result.direction.tolist() == [1.0, 1.0, 2.0, 1.0]
    assert whole.state_dict()["carried"].count_nonzero() == 0
