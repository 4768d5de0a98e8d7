"""The order of the paper's text: select a block of the rows, then aggregate it."""

from dataclasses import replace
from typing import final

import torch
from torch import Tensor

from holdfast._typing import Rate
from holdfast.aggregators import Aggregator, StepArguments
from holdfast.checks import check_instance, check_row_weights, check_vector
from holdfast.geometry import Block, ColumnRows, DenseRows, Rows, by_column
from holdfast.robust_step._memory import Memory
from holdfast.robust_step._step import Step
from holdfast.robust_step._step_result import StepResult
from holdfast.selectors import Selector, row_norms


@final
class SelectFirstStep(Step):
    r"""Augment, select, aggregate, retain: Algorithm 1 of the paper, with any rule and memory.

    With memory m, learning rate :math:`\gamma` and rows :math:`g_i`:

    1. augment: :math:`a_i = g_i + m / \gamma`;
    2. select: the `selector` chooses a block of columns by their norms over all rows;
    3. aggregate: the direction is the rule's aggregate of the rows on the block;
    4. retain: the `memory` keeps what the block left out.

    The rule gets only the block, so rows may lie elsewhere, and the memory does not pass through
    the rule. :class:`RobustStep` has the robust order. Use this one to compare with the paper and
    with its published experiments.

    Args:
        rule: the rule, or its name.
        selector: chooses the columns that are moved.
        memory: keeps the other columns for later steps.
        generator: source of random numbers, on the CPU; by default one with a fixed seed.

    Reference: Acharya et al., *Robust Training in High Dimensions via Block Coordinate Geometric
    Median Descent* (AISTATS 2022), Algorithm 1.

    Example:
        >>> from holdfast.robust_step import MeanMemory
        >>> from holdfast.selectors import NormSampling
        >>> selector = NormSampling(fraction=0.5, capped=False)
        >>> step = SelectFirstStep("geometric-median", selector=selector, memory=MeanMemory())
        >>> step(torch.ones(5, 8), lr=0.1).direction.count_nonzero().item()
        4
    """

    def __init__(
        self,
        rule: Aggregator | str,
        *,
        selector: Selector,
        memory: Memory,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(rule, selector, generator)
        check_instance("memory", memory, Memory)
        self.memory = memory

    def __repr__(self) -> str:
        return f"SelectFirstStep({self.rule!r}, selector={self.selector!r}, memory={self.memory!r})"

    @property
    def n_state_dimensions(self) -> int:  # type: ignore[override]
        return self.memory.n_state_dimensions

    @property
    def needs_lr(self) -> bool:
        return self.memory.needs_lr

    def _step(
        self, rows: Rows, rate: Rate, arguments: StepArguments
    ) -> tuple[StepResult, Tensor | None]:
        is_frozen = isinstance(rate, float) and rate == 0.0
        rows = by_column(rows)
        augmented = rows if is_frozen else self.memory.augment(rows, self._state, rate)
        weights = arguments.get("row_weights")
        weights = None if weights is None else check_row_weights(weights, rows.n)
        tiling = self.selector.tiling(rows.sections)
        norms, lengths = row_norms(
            augmented, tiling, capped=self.selector.capped, row_weights=weights
        )
        block = self.selector.select(tiling, norms, step=self.n_steps, generator=self.generator)
        on_block = augmented if block.is_whole else _columns(augmented, lengths, block)
        found = self._apply_rule(on_block, _arguments_on(block, arguments, rows))
        aggregate = replace(found, gram=None)  # it is not that of `rows`
        direction = _spread(aggregate.vector, block, rows)
        counts = torch.ones_like(lengths) if weights is None else weights * rows.n
        counts = counts.where(torch.isfinite(lengths), 0.0)
        if is_frozen:
            state = self._state
        else:
            state = self.memory.retain(augmented, counts, block, self._state, rate)
        return StepResult(direction, block, aggregate, _share_off(norms, block)), state


def _columns(rows: ColumnRows, lengths: Tensor, block: Block) -> DenseRows:
    """The rows on the block; rows that are not finite elsewhere become non-finite there."""
    columns = rows.tiles(block.tiling, block.tiles)
    columns[~torch.isfinite(lengths).to(columns.device)] = torch.nan
    return DenseRows(columns, holders=rows.holders)


def _arguments_on(block: Block, arguments: StepArguments, rows: Rows) -> StepArguments:
    """The arguments of the call for a rule that sees only the block."""
    reference, score = arguments.get("reference"), arguments.get("score")
    tiles = block.tiles.to(rows.device)
    local = StepArguments(**arguments)
    if reference is not None:
        check_vector("reference", reference, rows.d)
        local["reference"] = block.tiling.take(reference, tiles)
    if score is not None:
        whole = score
        local["score"] = lambda part: whole(_spread(part, block, rows))
    return local


def _spread(part: Tensor, block: Block, rows: Rows) -> Tensor:
    """[d] the vector [k] of the block's columns, zero elsewhere, in the dtype of the rows."""
    direction = torch.zeros(rows.d, dtype=rows.dtype, device=rows.device)
    block.tiling.put(direction, block.tiles.to(rows.device), part.to(rows.dtype))
    return direction


def _share_off(norms: Tensor, block: Block) -> float:
    """The share of the squared norm off the block."""
    squares = (norms / norms.max().clamp(min=torch.finfo(norms.dtype).tiny)).square()
    total = float(squares.sum())
    is_all = total == 0 or block.is_whole
    return 0.0 if is_all else 1.0 - float(squares[block.tiles].sum()) / total
