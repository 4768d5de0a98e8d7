"""What every robust step promises, with every memory and selector around every rule."""

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from holdfast.memory import MeanMemory, Memory, NoMemory, RobustMemory, RowMemory, memories
from torch import Tensor, nn

from holdfast import Layout, RobustStep, bgmd, preset
from holdfast.aggregators import (
    Aggregator,
    CoordinateMedian,
    GeometricMedian,
    GramAggregator,
    Krum,
    Mean,
)
from holdfast.errors import NonFiniteMemoryError, UnknownNameError
from holdfast.robust_step import presets
from holdfast.seeds import stream
from holdfast.selectors import Cyclic, Everything, NormSampling, Selector, TopNorm, Uniform
from tests.aggregators.cases import CASES, Case
from tests.oracle import robust_step as oracle
from tests.samples import HOSTILE, gaussian

N, D = 15, 230
SELECTORS: list[Selector] = [
    Everything(),
    NormSampling(fraction=0.2, tile=1),
    NormSampling(fraction=0.2, tile=16),
    NormSampling(count=3, tile=16, capped=False),
    Uniform(fraction=0.2, tile=16),
    TopNorm(fraction=0.2, tile=8),
    Cyclic(count=4, tile=16),
]
MEMORIES: list[Memory] = [
    NoMemory(),
    MeanMemory(),
    RowMemory(),
    RobustMemory(),
    RobustMemory(units="gradient"),
    MeanMemory(units="gradient"),
]
PAIRS = [
    (s, m) for s in SELECTORS for m in MEMORIES if s.reaches_every_column or not m.follows_weights
]
every_pair = pytest.mark.parametrize(("selector", "memory"), PAIRS, ids=lambda value: repr(value))


def steps(
    step: RobustStep, n_steps: int = 6, lr: float | Tensor = 0.1, dtype: torch.dtype = torch.float64
) -> list[Any]:
    return [step(gaussian(N, D, seed, dtype), lr=lr) for seed in range(n_steps)]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(
    "selector",
    [Everything(), NormSampling(fraction=1.0, tile=16)],
    ids=["everything", "a block of all"],
)
@pytest.mark.parametrize("memory", [NoMemory(), RobustMemory(), MeanMemory()], ids=repr)
def test_with_everything_the_step_is_the_rule(
    case: Case, selector: Selector, memory: Memory
) -> None:
    rows = case.rows(N, 23)
    extras = case.extras(rows)
    generator = extras.pop("generator", None)
    step = RobustStep(case.rule, selector=selector, memory=memory, generator=generator)
    for _ in range(1 if generator is not None else 3):
        result = step(rows, lr=0.1, **extras)
    if generator is None:
        expected = case.rule.aggregate(rows, **extras)
    elif isinstance(selector, Everything):
        expected = case.rule.aggregate(rows, **extras, generator=stream(0, "shuffled"))
    else:  # drawing the block has advanced the generator
        return
    assert result.direction.equal(expected.vector)
    assert result.rejected.equal(expected.rejected)
    assert step.state_dict()["carried"] is None
    assert result.residual == 0.0
    assert result.block.is_whole


@every_pair
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_the_direction_is_zero_off_the_block(
    selector: Selector, memory: Memory, dtype: torch.dtype
) -> None:
    for result in steps(
        RobustStep(GeometricMedian(), selector=selector, memory=memory), dtype=dtype
    ):
        assert result.direction.dtype == dtype
        assert oracle.remainder(result.direction, result.block.columns).count_nonzero() == 0
        assert result.direction.count_nonzero() > 0
        assert result.weights.sum() == pytest.approx(1.0)
        assert 0.0 <= result.residual <= 1.0
        assert not bool(result.rejected.any())


@every_pair
@pytest.mark.parametrize(
    "rates", [[0.1] * 6, [0.1, 0.1, 0.5, 0.01, 1e-6, 2.0]], ids=["constant", "changing"]
)
def test_each_memory_keeps_what_its_definition_says(
    selector: Selector, memory: Memory, rates: list[float]
) -> None:
    step = RobustStep(GeometricMedian(), selector=selector, memory=memory)
    before = None
    for seed, lr in enumerate(rates):
        rows = gaussian(N, D, seed, torch.float64)
        result = step(rows, lr=lr)
        assert result.weights is not None
        kept = step.state_dict()["carried"]
        if isinstance(memory, NoMemory):
            assert kept is None
            continue
        if kept is None:  # nothing is left out, and nothing kept
            assert result.block.is_whole
            kept = torch.zeros(D, dtype=torch.float64)
        rate = lr if memory.needs_lr else 1.0
        expected = oracle.next_memory(
            memory.name, rows, before, rate, result.block.columns, result.weights
        )
        torch.testing.assert_close(kept, expected, rtol=1e-9, atol=1e-12)
        assert result.carried_norm == pytest.approx(float(expected.norm()))
        if (
            memory.follows_weights
        ):  # what is sent and what is kept are together the weighted sum of the augmented rows
            total = rate * (result.weights @ oracle.augmented(rows, before, rate))
            torch.testing.assert_close(rate * result.direction + kept, total, rtol=1e-9, atol=1e-12)
        before = kept


@every_pair
def test_a_resumed_step_goes_on_bit_for_bit(selector: Selector, memory: Memory) -> None:
    def make() -> RobustStep:
        return RobustStep(
            GeometricMedian(), selector=selector, memory=memory, generator=stream(5, "step")
        )

    whole = make()
    expected = [whole(gaussian(N, D, seed), lr=0.1 + 0.01 * seed).direction for seed in range(8)]
    first = make()
    for seed in range(4):
        first(gaussian(N, D, seed), lr=0.1 + 0.01 * seed)
    saved = io.BytesIO()
    torch.save(first.state_dict(), saved)
    first(gaussian(N, D, 77), lr=0.1)  # what happens afterwards does not reach the saved state
    saved.seek(0)
    second = RobustStep(GeometricMedian(), selector=selector, memory=memory)
    second.load_state_dict(torch.load(saved, weights_only=True))
    assert second.n_steps == 4
    for seed in range(4, 8):
        assert second(gaussian(N, D, seed), lr=0.1 + 0.01 * seed).direction.equal(expected[seed])
    for key, value in whole.state_dict().items():
        same = second.state_dict()[key]
        assert value.equal(same) if isinstance(value, Tensor) else value == same


@every_pair
def test_input_and_earlier_results_are_left_alone(selector: Selector, memory: Memory) -> None:
    step = RobustStep(GeometricMedian(), selector=selector, memory=memory)
    rates = torch.full((D,), 0.1)
    given, results, states = [gaussian(N, D, seed) for seed in range(5)], [], []
    copies = [rows.clone() for rows in given]
    for rows in given:
        results.append(step(rows, lr=rates).direction)
        states.append(step.state_dict())
    again = RobustStep(GeometricMedian(), selector=selector, memory=memory)
    for rows, copy, direction, state in zip(given, copies, results, states, strict=True):
        assert rows.equal(copy)
        assert again(copy, lr=rates).direction.equal(direction)
        for key, value in again.state_dict().items():
            assert value.equal(state[key]) if isinstance(value, Tensor) else value == state[key]
    assert rates.equal(torch.full((D,), 0.1))


class Refuses(GramAggregator):
    """A rule that fails once everything before it has happened."""

    name = "refuses"

    @property
    def n_needed(self) -> int:
        return 1

    def _n_resisted(self, n: int) -> int:
        return 0

    def _solve(self, gram: Any, given: Any) -> Any:
        raise RuntimeError("no")


@every_pair
def test_a_step_that_fails_did_not_happen(selector: Selector, memory: Memory) -> None:
    step = RobustStep(GeometricMedian(), selector=selector, memory=memory)
    steps(step, 3)
    before = step.state_dict()
    lost = gaussian(N, D, 50, torch.float64)
    lost[:8, 3] = float("nan")
    attempts: list[Callable[[], Any]] = [
        lambda: step(lost, lr=0.1),
        lambda: step(gaussian(N, D, 9, torch.float64), lr=-0.1),
        lambda: step(gaussian(N, D, 9, torch.float64), lr=float("nan")),
        lambda: step(gaussian(N, D, 9, torch.float64), lr=torch.ones(D + 1)),
        lambda: step(gaussian(N, D, 9, torch.float64), lr=0.1, reference=torch.ones(D)),
        lambda: step("rows", lr=0.1),  # type: ignore[arg-type]
    ]
    for attempt in attempts:
        with pytest.raises(ValueError, match=r"must|is not accepted by"):
            attempt()
    object.__setattr__(step, "rule", Refuses())
    with pytest.raises(RuntimeError, match="no"):
        step(gaussian(N, D, 9, torch.float64), lr=0.1)
    for key, value in step.state_dict().items():
        assert value.equal(before[key]) if isinstance(value, Tensor) else value == before[key]


@pytest.mark.parametrize("memory", [MeanMemory(), RobustMemory()], ids=repr)
def test_warm_up_keeps_the_memory(memory: Memory) -> None:
    """At a learning rate of zero the rows are aggregated alone, and what was owed is still owed."""
    step = RobustStep(
        GeometricMedian(), selector=NormSampling(fraction=0.2, tile=16), memory=memory
    )
    steps(step, 3)
    before = step.state_dict()["carried"]
    rows = gaussian(N, D, 9, torch.float64)
    result = step(rows, lr=0.0)
    assert result.weights is not None
    assert step.state_dict()["carried"].equal(before)
    torch.testing.assert_close(
        result.direction[result.block.columns], (result.weights @ rows)[result.block.columns]
    )
    step(
        rows, lr=1e-300
    )  # so small that what is owed could not be told as a gradient: counts as zero
    assert step.state_dict()["carried"].equal(before)
    assert step.n_steps == 5


@pytest.mark.parametrize("memory", [MeanMemory(), RobustMemory(), RowMemory()], ids=repr)
def test_every_column_may_have_its_own_rate(memory: Memory) -> None:
    """Equal rates are the number; where the rate is zero, the memory stays as it is."""

    def make() -> RobustStep:
        return RobustStep(
            GeometricMedian(), selector=NormSampling(fraction=0.3, tile=16), memory=memory
        )

    single, many = make(), make()
    for seed in range(4):
        rows = gaussian(N, D, seed, torch.float64)
        a, b = single(rows, lr=0.2), many(rows, lr=torch.full((D,), 0.2, dtype=torch.float64))
        torch.testing.assert_close(a.direction, b.direction)
    before = many.state_dict()["carried"]
    rates = torch.full((D,), 0.3, dtype=torch.float64)
    rates[:100] = 0.0
    result = many(gaussian(N, D, 9, torch.float64), lr=rates)
    after = many.state_dict()["carried"]
    assert after[..., :100].equal(before[..., :100])
    moved = result.block.columns[result.block.columns >= 100]
    assert after[..., moved].count_nonzero() == 0
    many(gaussian(N, D, 10, torch.float64), lr=torch.zeros(D, dtype=torch.float64))
    assert many.state_dict()["carried"].equal(after)


def test_a_rate_too_small_for_one_column_concerns_that_column_alone() -> None:
    step, rates = bgmd(fraction=0.1, tile=1), torch.full((40,), 0.1)
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
    step = bgmd(fraction=0.25, tile=1)
    rows = gaussian(9, 40, dtype=torch.float16)
    step(rows, lr=1.0)
    before = step.state_dict()["carried"]
    with pytest.raises(
        NonFiniteMemoryError, match=r"^`direction` must fit torch.float16, got entries up to"
    ):
        step(rows, lr=1e-6)
    assert step.state_dict()["carried"].equal(before)


def test_gradient_units_need_no_rate() -> None:
    rate_free, with_one = bgmd(fraction=0.2, units="gradient"), bgmd(fraction=0.2)
    for seed in range(5):
        rows = gaussian(N, D, seed)
        assert rate_free(rows).direction.equal(with_one(rows, lr=1.0).direction)
    assert rate_free(gaussian(N, D), lr=0.3).carried_norm > 0  # a rate does no harm


def test_what_is_owed_does_not_depend_on_later_rates() -> None:
    """Rows that agree on one vector: after enough steps plain SGD has moved by the sum of rates times that vector."""
    step, vector = bgmd(fraction=0.3, tile=1), gaussian(1, 40, dtype=torch.float64)
    rates = [0.1, 0.7, 0.01, 0.3, 0.2, 0.05]
    moved = torch.zeros(40, dtype=torch.float64)
    for lr in rates:
        moved += lr * step(vector.repeat(5, 1), lr=lr).direction
    torch.testing.assert_close(moved + step.state_dict()["carried"], sum(rates) * vector[0])


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(
    "memory", [NoMemory(), MeanMemory(), RobustMemory(), RowMemory()], ids=repr
)
def test_every_rule_works_in_a_block(case: Case, memory: Memory) -> None:
    step = RobustStep(case.rule, selector=NormSampling(fraction=0.3, tile=4), memory=memory)
    for seed in range(4):
        rows = case.rows(N, 60, seed)
        rows[2] = (
            float("nan")
            if case.rule.n_resisted(N) >= 1 and "majority" not in case.text
            else rows[2]
        )
        extras = {
            key: value
            for key, value in case.extras(torch.nan_to_num(rows)).items()
            if key != "generator"
        }
        result = step(rows, lr=0.1, **extras)
        assert bool(torch.isfinite(result.direction).all())
        assert result.direction.count_nonzero() > 0
        assert oracle.remainder(result.direction, result.block.columns).count_nonzero() == 0
        assert result.carried_norm < 100


def test_a_coordinate_rule_moves_the_block_and_weights_keep_the_rest() -> None:
    step = RobustStep(
        CoordinateMedian(), selector=NormSampling(fraction=0.25, tile=8), memory=RobustMemory()
    )
    rows = gaussian(N, D, dtype=torch.float64)
    result = step(rows, lr=0.5)
    columns = result.block.columns
    torch.testing.assert_close(result.direction[columns], rows[:, columns].median(0).values)
    assert result.weights is None
    kept = step.state_dict()["carried"]
    assert kept[columns].count_nonzero() == 0
    mean_off = oracle.remainder(rows.mean(0), columns)
    assert float((kept / 0.5 - mean_off).norm()) < 0.2 * float(mean_off.norm())


def test_lists_of_parameters_equal_a_matrix_with_their_layout() -> None:
    layout = Layout(nn.Sequential(nn.Linear(9, 20), nn.Linear(20, 2)))
    for selector in (NormSampling(fraction=0.2, tile=16), NormSampling(count=2, tile="parameter")):
        both = [
            RobustStep(GeometricMedian(), selector=selector, memory=RobustMemory())
            for _ in range(2)
        ]
        for seed in range(4):
            rows = gaussian(N, layout.d, seed)
            listed = [
                part.reshape(N, *shape)
                for part, shape in zip(
                    torch.split(rows, list(layout.sizes), 1), layout.shapes, strict=True
                )
            ]
            a, b = both[0](layout.rows(rows), lr=0.1), both[1](listed, lr=0.1)
            assert a.block.columns.equal(b.block.columns)
            torch.testing.assert_close(a.direction, b.direction, rtol=1e-4, atol=1e-5)
    chosen = a.block.columns
    for start, stop in zip(
        (0, 180, 200, 240), (180, 200, 240, 242), strict=True
    ):  # whole parameters or nothing
        inside = int(((chosen >= start) & (chosen < stop)).sum())
        assert inside in (0, stop - start)


@pytest.mark.parametrize("kind", HOSTILE)
def test_bad_rows_of_any_kind_are_survived(kind: str) -> None:
    step = bgmd(fraction=0.2, tile=8)
    for seed in range(10):
        rows = gaussian(N, D, seed)
        rows[:6] = HOSTILE[kind](rows[:6])
        result = step(rows, lr=0.1)
        assert float(result.direction.norm()) < 100
        assert result.carried_norm < 10
        if kind in ("nan", "inf", "one nan", "minus inf"):
            assert result.rejected.tolist() == [True] * 6 + [False] * 9


@pytest.mark.parametrize("memory", MEMORIES, ids=repr)
@pytest.mark.parametrize("rule", [GeometricMedian(), CoordinateMedian(), Mean()], ids=repr)
def test_a_row_that_is_not_finite_off_the_block_is_rejected(
    memory: Memory, rule: Aggregator
) -> None:
    step = RobustStep(rule, selector=NormSampling(count=2, tile=1), memory=memory)
    for seed in range(4):
        rows = gaussian(N, D, seed)
        rows[3, 100 + seed] = float("inf")
        rows[7, 50 + seed] = float("nan")
        result = step(rows, lr=0.1)
        assert torch.nonzero(result.rejected)[:, 0].tolist() == [3, 7]
        assert result.carried_norm < 100


def test_the_mean_of_rows_counts_them_by_weight() -> None:
    step = RobustStep(
        GeometricMedian(), selector=NormSampling(fraction=0.2, tile=1), memory=MeanMemory()
    )
    rows = gaussian(4, 50, dtype=torch.float64)
    weights = torch.tensor([0.0, 1.0, 2.0, 1.0], dtype=torch.float64)
    result = step(rows, lr=1.0, row_weights=weights)
    torch.testing.assert_close(
        step.state_dict()["carried"], oracle.remainder(weights / 4 @ rows, result.block.columns)
    )


def test_row_weights_reach_the_rule() -> None:
    rows, weights = gaussian(5, 200), torch.tensor([0.0, 1.0, 1.0, 1.0, 5.0])
    result = bgmd(fraction=0.3)(rows, lr=0.1, row_weights=weights)
    assert result.weights is not None
    assert result.weights.tolist() == pytest.approx([0, 0, 0, 0, 1])


def test_a_memory_that_overflows_stops_the_step() -> None:
    step = preset("bgmd-paper(fraction=0.2)")
    rows = gaussian(N, D)
    rows[0] = 3e38
    with pytest.raises(
        NonFiniteMemoryError, match=r"^`memory` must stay finite, got a norm of inf in MeanMemory"
    ):
        step(rows, lr=1e3)
    assert step.state_dict()["carried"] is None


def test_residuals_of_rows_survive_a_lost_row() -> None:
    step = RobustStep(
        GeometricMedian(), selector=NormSampling(fraction=0.2, tile=8), memory=RowMemory()
    )
    steps(step, 2)
    before = step.state_dict()["carried"]
    rows = gaussian(N, D, 9, torch.float64)
    rows[4, 7] = float("nan")
    step(rows, lr=0.1)
    after = step.state_dict()["carried"]
    assert after[4].equal(before[4])
    assert not after[3].equal(before[3])


def test_presets_by_name() -> None:
    assert list(presets) == ["bgmd", "bgmd-paper", "bgmd-published"]
    ours, paper, published = (preset(f"{name}(fraction=0.05)") for name in presets)
    assert (ours.selector, ours.memory) == (NormSampling(fraction=0.05), RobustMemory())
    assert (paper.selector, paper.memory) == (
        NormSampling(fraction=0.05, tile=1, capped=False),
        MeanMemory(),
    )
    assert (published.selector, published.memory) == (
        TopNorm(fraction=0.05, tile=1, capped=False),
        RowMemory(),
    )
    assert {type(step.aggregator) for step in (ours, paper, published)} == {GeometricMedian}
    assert preset("bgmd").selector == NormSampling(fraction=0.1)
    assert repr(bgmd(rule=Krum(n_bad=2))).startswith(
        "RobustStep(Krum(n_bad=2, bad_fraction=None), selector=NormSampling(fraction=0.1"
    )
    for memory in MEMORIES:
        assert memories.from_json(memories.to_json(memory)) == memory


def test_bad_names_of_presets() -> None:
    with pytest.raises(
        UnknownNameError,
        match=r"^`preset` must be one of bgmd, bgmd-paper, bgmd-published, got 'bgmf' \(did you mean 'bgmd'\?\)\.$",
    ):
        preset("bgmf")
    assert preset("bgmd(rule='krum(n_bad=2)')").aggregator == Krum(n_bad=2)
    with pytest.raises(
        ValueError, match=r"^`bgmd` must be given fraction, tile, units, aggregator, got 'k'\.$"
    ):
        preset("bgmd(k=3)")
    with pytest.raises(
        ValueError, match=r"^`preset` must have the form 'name\(argument=value\)', got 5\.$"
    ):
        preset(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^`fraction` must be in \(0, 1\], got 2\.$"):
        preset("bgmd(fraction=2)")


def test_bad_tensors_of_a_state() -> None:
    step, good = bgmd(), bgmd().state_dict()
    for memory in (
        torch.zeros(8).to_sparse(),
        torch.zeros(8, device="meta"),
        torch.zeros(8, dtype=torch.int64),
    ):
        with pytest.raises(
            ValueError,
            match=r"^`state\['memory'\]` must be None or a tensor \[d\] for RobustMemory",
        ):
            step.load_state_dict(good | {"memory": memory})


BAD_STEPS: list[tuple[Callable[[], Any], str]] = [
    (lambda: RobustStep(GeometricMedian(), selector=TopNorm(fraction=0.1), memory=RobustMemory()), "`selector` must give every column a chance, because RobustMemory"),
    (lambda: RobustStep(GeometricMedian(), selector=Cyclic(count=1), memory=RobustMemory()), "`selector` must give every column a chance"),
    (lambda: RobustStep("mean"), "`aggregator` must be an Aggregator, got str."),  # type: ignore[arg-type]
    (lambda: RobustStep(Mean(), selector=0.1), "`selector` must be a Selector, got float."),  # type: ignore[arg-type]
    (lambda: RobustStep(Mean(), memory="robust"), "`memory` must be a Memory, got str."),  # type: ignore[arg-type]
    (lambda: RobustStep(Mean(), generator=3), "`generator` must be a torch.Generator, got int."),  # type: ignore[arg-type]
    (lambda: RobustMemory(units="metres"), "`units` must be 'parameter' or 'gradient', got 'metres'."),  # type: ignore[arg-type]
    (lambda: bgmd()(gaussian(3, 4)), "`lr` must be given, because RobustMemory(units='parameter') keeps what the parameters are owed, got None."),
    (lambda: bgmd()(gaussian(3, 4), lr=-1.0), "`lr` must be a finite number of at least 0, got -1.0."),
    (lambda: bgmd()(gaussian(3, 4), lr=torch.tensor([1.0, -1.0, 1.0, 1.0])), "`lr` must be finite and not negative"),
    (lambda: bgmd()(gaussian(3, 4), lr=torch.tensor(True)), "`lr` must be a dense floating tensor, got torch.bool."),
    (lambda: NormSampling(fraction=0.1, capped="no"), "`capped` must be True or False, got 'no'."),  # type: ignore[arg-type]
    (lambda: bgmd()(gaussian(3, 4), lr="0.1"), "`lr` must be a finite number of at least 0, got 0.1."),  # type: ignore[arg-type]
    (lambda: preset("bgmd(units='gradient')")(gaussian(3, 4), lr=float("inf")), "`lr` must be a finite number of at least 0, got inf."),
]  # fmt: skip


@pytest.mark.parametrize(
    ("attempt", "message"), BAD_STEPS, ids=[message for _, message in BAD_STEPS]
)
def test_bad_arguments_are_named(attempt: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match="must") as caught:
        attempt()
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("memory", [RobustMemory(), RowMemory()], ids=repr)
def test_rows_of_another_shape_are_refused(memory: Memory) -> None:
    step = RobustStep(GeometricMedian(), selector=NormSampling(fraction=0.5), memory=memory)
    step(gaussian(5, 8), lr=0.1)
    with pytest.raises(
        ValueError,
        match=r"^`rows` must have the (rows and )?columns of the memory, \((5, )?8,?\), got \((5, )?9,?\)\.$",
    ):
        step(gaussian(5, 9), lr=0.1)
    if isinstance(memory, RowMemory):
        with pytest.raises(
            ValueError,
            match=r"^`rows` must have the rows and columns of the memory, \(5, 8\), got \(4, 8\)\.$",
        ):
            step(gaussian(4, 8), lr=0.1)


def test_states_that_do_not_fit_are_refused() -> None:
    step = bgmd(fraction=0.5)
    step(gaussian(5, 8), lr=0.1)
    good = step.state_dict()
    bad: list[tuple[object, str]] = [
        (5, "`state` must be a mapping with the keys generator, memory, n_steps, got int."),
        ({"memory": None}, "`state` must be a mapping with the keys generator, memory, n_steps, got ['memory']."),
        (good | {"memory": torch.zeros(5, 8)}, "`state['memory']` must be None or a tensor [d] for RobustMemory(units='parameter'), got torch.float32 of shape (5, 8)."),
        (good | {"memory": torch.zeros(9)}, "`state['memory']` must have the shape (8,) of the memory, got (9,)."),
        (good | {"memory": torch.full((8,), float("nan"))}, "`state['memory']` must be finite, got NaN or infinity."),
        (good | {"memory": [0.0] * 8}, "`state['memory']` must be None or a tensor [d]"),
        (good | {"n_steps": -1}, "`state['n_steps']` must be a whole number of at least 0, got -1."),
        (good | {"generator": torch.zeros(3, dtype=torch.uint8)}, "`state['generator']` must be the state of a torch.Generator, got"),
        (good | {"generator": None}, "`state['generator']` must be the state of a torch.Generator, got"),
    ]  # fmt: skip
    for state, message in bad:
        with pytest.raises(ValueError, match="must") as caught:
            step.load_state_dict(state)  # type: ignore[arg-type]
        assert str(caught.value).startswith(message)
    after = step.state_dict()
    assert after["carried"].equal(good["carried"])
    assert after["generator"].equal(good["generator"])
    assert after["n_steps"] == 1
    with pytest.raises(
        ValueError, match=r"must be None for NoMemory\(\), got torch.float32 of shape \(8,\)"
    ):
        RobustStep(Mean()).load_state_dict(good)
