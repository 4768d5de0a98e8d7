"""The paper's order: what each memory retains, and what reaches the rule on a block."""

import pytest
import torch

from holdfast import SelectFirstStep, preset
from holdfast.errors import NonFiniteMemoryError
from holdfast.robust_step import MeanMemory, Memory, NoMemory, RowMemory
from holdfast.selectors import NormSampling, Selector, TopNorm
from tests.oracle import robust_step as oracle
from tests.robust_step.steps import MEMORIES, D, N, every_selector, run
from tests.samples import gaussian

every_memory = pytest.mark.parametrize("memory", MEMORIES, ids=repr)


@every_memory
@every_selector
def test_each_memory_retains_what_its_definition_says(memory: Memory, selector: Selector) -> None:
    step = SelectFirstStep("geometric-median", selector=selector, memory=memory)
    before = None
    for seed, lr in enumerate([0.1, 0.1, 0.5, 0.01, 1e-6, 2.0]):
        rows = gaussian(N, D, seed, torch.float64)
        result = step(rows, lr=lr)
        kept = step.state_dict()["carried"]
        if isinstance(memory, NoMemory):
            assert kept is None
            continue
        if kept is None:
            assert result.block.is_whole
            kept = torch.zeros(D, dtype=torch.float64)
        rate, columns = lr if memory.needs_lr else 1.0, result.block.columns
        expected = oracle.next_memory(memory.name, rows, before, rate, columns)
        torch.testing.assert_close(kept, expected, rtol=1e-9, atol=1e-12)
        assert result.carried_norm == pytest.approx(float(expected.norm()))
        # The rule sees the block of the augmented rows.
        aggregated = step.rule(oracle.augmented(rows, before, rate)[:, columns])
        torch.testing.assert_close(result.direction[columns], aggregated, rtol=1e-5, atol=1e-5)
        before = kept


@pytest.mark.parametrize("memory", [MeanMemory(), RowMemory()], ids=repr)
def test_rates_of_zero_and_rates_by_column(memory: Memory) -> None:
    step = SelectFirstStep("mean", selector=NormSampling(fraction=0.2, tile=16), memory=memory)
    run(step, 3)
    before = step.state_dict()["carried"]
    rows = gaussian(N, D, 9, torch.float64)
    for lr in (0.0, 1e-300, torch.zeros(D)):
        result = step(rows, lr=lr)
        columns = result.block.columns
        assert step.state_dict()["carried"].equal(before)
        torch.testing.assert_close(result.direction[columns], rows.mean(0)[columns])
    rates = torch.full((D,), 0.3, dtype=torch.float64)
    rates[:100] = 0.0
    columns = step(rows, lr=rates).block.columns
    after = step.state_dict()["carried"]
    assert after[..., :100].equal(before[..., :100])
    assert after[..., columns[columns >= 100]].count_nonzero() == 0


def test_the_mean_of_rows_counts_them_by_weight() -> None:
    selector = NormSampling(fraction=0.2, tile=1)
    step = SelectFirstStep("geometric-median", selector=selector, memory=MeanMemory())
    rows = gaussian(4, 50, dtype=torch.float64)
    weights = torch.tensor([0.0, 1.0, 2.0, 1.0], dtype=torch.float64)
    result = step(rows, lr=1.0, row_weights=weights)
    expected = oracle.remainder(weights / 4 @ rows, result.block.columns)
    torch.testing.assert_close(step.state_dict()["carried"], expected)


def test_references_and_scores_are_those_of_the_block() -> None:
    """A trusted reference is read on the block, and a score gets a whole direction."""
    selector, rows = TopNorm(fraction=0.25, tile=8), gaussian(N, D, dtype=torch.float64)
    step = SelectFirstStep("trusted-reference", selector=selector, memory=NoMemory())
    reference = gaussian(1, D, seed=7, dtype=torch.float64)[0]
    result = step(rows, reference=reference)
    columns = result.block.columns
    expected = step.rule(rows[:, columns], reference=reference[columns])
    torch.testing.assert_close(result.direction[columns], expected)
    sizes: list[tuple[int, bool]] = []

    def score(direction: torch.Tensor) -> float:
        off = oracle.remainder(direction, columns)
        sizes.append((len(direction), bool(off.count_nonzero() == 0)))
        return float(direction.sum())

    SelectFirstStep("zeno(n_bad=3)", selector=selector, memory=NoMemory())(rows, score=score)
    assert set(sizes) == {(D, True)}


def test_a_memory_that_overflows_stops_the_step() -> None:
    step = preset("bgmd-paper(fraction=0.2)")
    rows = gaussian(N, D)
    rows[0] = 3e38
    message = (
        r"^`SelectFirstStep\(GeometricMedian.*` must have a finite memory, got a norm of inf\.$"
    )
    with pytest.raises(NonFiniteMemoryError, match=message):
        step(rows, lr=1e3)
    assert step.state_dict()["carried"] is None


def test_residuals_of_rows_survive_a_lost_row() -> None:
    selector = NormSampling(fraction=0.2, tile=8)
    step = SelectFirstStep("geometric-median", selector=selector, memory=RowMemory())
    run(step, 2)
    before = step.state_dict()["carried"]
    rows = gaussian(N, D, 9, torch.float64)
    rows[4, 7] = float("nan")
    step(rows, lr=0.1)
    after = step.state_dict()["carried"]
    assert after[4].equal(before[4])
    assert not after[3].equal(before[3])
