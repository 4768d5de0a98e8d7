"""The robust step: augment, select, aggregate, retain."""

from typing import Any, final

import torch
from torch import Tensor

from holdfast._typing import Score, TensorOrTensors
from holdfast.aggregators import Aggregate, Aggregator, GeometricMedian
from holdfast.checks import check_generator, check_instance, check_lr, failure
from holdfast.errors import NonFiniteMemoryError
from holdfast.geometry import Block, DenseRows, Rows, length
from holdfast.memory import AugmentedRows, Memory, NoMemory
from holdfast.robust_step._on_block import on_block, share_off, spread
from holdfast.robust_step._sketched_rows import SketchedRows
from holdfast.robust_step._step_result import StepResult
from holdfast.robust_step._step_state import check_step_state
from holdfast.seeds import stream
from holdfast.selectors import Everything, Selector

LARGEST = 1e37
"""What the memory may amount to in units of gradients; a learning rate so small that it would be more counts as zero."""


@final
class RobustStep:
    r"""From rows to the direction of one training step, with a block of columns and a memory around any rule.

    With memory m, learning rate :math:`\gamma` and rows :math:`g_i`:

    1. augment: :math:`a_i = g_i + m / \gamma`;
    2. select: the `selector` draws a block of columns by their norms over all rows;
    3. aggregate: with :class:`~holdfast.memory.RobustMemory` the rule finds weights w from a sketch of the whole rows, and the direction is
       :math:`\sum_i w_i a_i` on the block; with any other memory, and for rules that look at single coordinates, the rule is applied to
       the block itself;
    4. retain: the `memory` keeps what was not sent.

    The step owns what changes: the memory's state, the generator and the number of steps. It happens wholly or not at all: a call
    that raises leaves the step as it was.

    Args:
        aggregator: the rule.
        selector: which columns are moved; all of them by default.
        memory: what becomes of the others.
        generator: source of random numbers, on the CPU; by default one with a fixed seed, so that every step object draws the same blocks.

    Reference: Acharya et al., *Robust Training in High Dimensions via Block Coordinate Geometric Median Descent* (AISTATS 2022), Algorithm 1.

    Example:
        >>> from holdfast.selectors import NormSampling
        >>> from holdfast.memory import RobustMemory
        >>> step = RobustStep(GeometricMedian(), selector=NormSampling(fraction=0.5), memory=RobustMemory())
        >>> result = step(torch.ones(5, 8), lr=0.1)
        >>> result.direction.count_nonzero().item(), round(result.residual, 6)
        (4, 0.5)
        >>> round(result.memory_norm, 6)  # 0.1 is still owed in each of the 4 other columns
        0.2
    """

    def __init__(
        self,
        aggregator: Aggregator,
        *,
        selector: Selector | None = None,
        memory: Memory | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        self.aggregator = aggregator
        self.selector = Everything() if selector is None else selector
        self.memory = NoMemory() if memory is None else memory
        self.generator = stream(0, "robust step") if generator is None else generator
        check_instance("aggregator", self.aggregator, Aggregator)
        check_instance("selector", self.selector, Selector)
        check_instance("memory", self.memory, Memory)
        check_generator(self.generator)
        if self.generator.device.type != "cpu":
            raise failure(
                "generator", "be on the CPU, where blocks are drawn", self.generator.device
            )
        if self.memory.follows_weights and not self.selector.reaches_every_column:
            raise failure(
                "selector",
                f"give every column a chance, because {self.memory!r} weighs whole rows by a sketch",
                f"{self.selector!r}, which may never look at some",
            )
        self.n_steps = 0
        self._state: Tensor | None = None
        self._memory_norm = 0.0

    def __repr__(self) -> str:
        return (
            f"RobustStep({self.aggregator!r}, selector={self.selector!r}, memory={self.memory!r})"
        )

    @torch.no_grad()
    def __call__(
        self,
        rows: Rows | TensorOrTensors,
        *,
        lr: float | Tensor | None = None,
        row_weights: Tensor | None = None,
        reference: Tensor | None = None,
        score: Score | None = None,
    ) -> StepResult:
        """One step.

        Args:
            rows: [n, d] tensor, list of [n, ...] tensors (one per parameter), or any `Rows`.
            lr: the learning rate with which the direction will be used, a number or a tensor [d]; needed by memories in units of
                parameters. At zero the memory stays as it is, and the rows are aggregated alone.
            row_weights: [n] how much each row counts, for rules that take it.
            reference: [d] a trusted or previous direction, for rules that take it.
            score: judges a direction on trusted data, for rules that take it.
        """
        rows = rows if isinstance(rows, Rows) else DenseRows(rows)
        given = {"row_weights": row_weights, "reference": reference, "score": score}
        rate = self._rate(lr, rows)
        self._check_state_fits(rows)
        drawn = self.generator.get_state()
        try:
            with torch.autocast(rows.device.type, enabled=False):
                return self._step(
                    rows, rate, {name: value for name, value in given.items() if value is not None}
                )
        except BaseException:
            self.generator.set_state(drawn)
            raise

    def backward(
        self,
        rows: Rows,
        *,
        lr: float | Tensor | None = None,
        row_weights: Tensor | None = None,
        reference: Tensor | None = None,
        score: Score | None = None,
    ) -> StepResult:
        """One step whose direction is added to the parameters' `.grad`, as a backward pass would do.

        The rows must carry their layout; other arguments as in a call.
        """
        layout = rows.layout if isinstance(rows, Rows) else None
        if layout is None:
            raise failure(
                "rows",
                "carry a layout (`Layout(model).rows(...)` makes such rows)",
                type(rows).__name__,
            )
        result = self(rows, lr=lr, row_weights=row_weights, reference=reference, score=score)
        layout.write_gradient(result.direction)
        return result

    def _step(self, rows: Rows, rate: float | Tensor, given: dict[str, Any]) -> StepResult:
        is_frozen = isinstance(rate, float) and rate == 0.0
        row_weights = given.get("row_weights")
        if is_frozen:
            augmented = AugmentedRows(rows, row_weights=row_weights)
        else:
            augmented = self.memory.augment(rows, self._state, rate, row_weights)
        tiling = self.selector.tiling(rows.sections)
        if self.selector.takes_everything:
            scores = torch.ones(tiling.n_tiles, dtype=torch.float64)
        else:
            scores = augmented.scores(tiling, capped=self.selector.capped)
        block = self.selector.select(tiling, scores, step=self.n_steps, generator=self.generator)
        aggregate, sent, total = self._aggregate(augmented, block, given)
        if is_frozen:
            state = self._state
        elif block.is_whole and self.memory.n_state_dimensions == 1 and isinstance(rate, float):
            state = None  # nothing is left out
        else:
            state = self.memory.retain(augmented, block, self._state, rate, total)
        norm = 0.0 if state is None else length(state)
        if not norm < float("inf"):
            raise NonFiniteMemoryError(
                f"`memory` must stay finite, got a norm of {norm} in {self.memory!r}."
            )
        # The largest entry tells without a copy of the whole, which a sum in float64 would make.
        if not bool(torch.isfinite(torch.linalg.vector_norm(sent.to(rows.dtype), torch.inf))):
            raise NonFiniteMemoryError(
                f"`direction` must fit {rows.dtype}, got entries up to {float(sent.abs().max()):g}."
            )
        residual = share_off(scores, block)
        # From here on nothing can fail.
        spent = self._state if state is not self._state else None
        direction = sent if block.is_whole else spread(sent, block, rows, spent)
        self._state, self._memory_norm = state, norm
        self.n_steps += 1
        return StepResult(
            direction=direction,
            block=block,
            weights=aggregate.weights,
            rejected=aggregate.rejected,
            residual=residual,
            memory_norm=norm,
            outcome=aggregate.outcome,
            gap=aggregate.gap,
            steps=aggregate.steps,
            reference_weight=aggregate.reference_weight,
        )

    def _aggregate(
        self, augmented: AugmentedRows, block: Block, given: dict[str, Any]
    ) -> tuple[Aggregate, Tensor, Tensor | None]:
        """The rule's aggregate, what is sent on the block [k], and the sum [d] of whole rows that the memory may follow."""
        if "generator" in self.aggregator.needs:
            given = given | {"generator": self.generator}
        rows, follows_weights = augmented.rows, self.memory.follows_weights
        if block.is_whole:
            aggregate = self.aggregator.aggregate(augmented.block(block), **given)
            sent = aggregate.vector.to(rows.dtype)
            return aggregate, sent, torch.zeros_like(aggregate.vector) if follows_weights else None
        if follows_weights and not self.aggregator.reads_columns:
            aggregate = self.aggregator.aggregate(SketchedRows(augmented, block), **given)
            sent = block.tiling.take(aggregate.vector, block.tiles.to(rows.device))
            return aggregate, sent, aggregate.vector
        aggregate = self.aggregator.aggregate(
            augmented.block(block), **on_block(given, block, rows)
        )
        if not follows_weights:
            return aggregate, aggregate.vector, None
        whole = GeometricMedian().aggregate(
            SketchedRows(augmented, block), row_weights=given.get("row_weights")
        )
        return aggregate, aggregate.vector, whole.vector

    def _rate(self, lr: float | Tensor | None, rows: Rows) -> float | Tensor:
        """The learning rate as the memory uses it: a number, or a tensor [d] with an entry above zero."""
        rate = 1.0 if lr is None else check_lr(lr, rows.d)
        if not self.memory.needs_lr:
            return 1.0
        if lr is None:
            raise failure(
                "lr", f"be given, because {self.memory!r} keeps what the parameters are owed", None
            )
        smallest = max(1.0, self._memory_norm) / LARGEST
        if isinstance(rate, float):
            return rate if rate > smallest else 0.0
        large = rate > smallest
        return rate.where(large, 0.0).to(rows.device) if bool(large.any()) else 0.0

    def _check_state_fits(self, rows: Rows) -> None:
        if self._state is None:
            return
        wanted = (rows.d,) if self.memory.n_state_dimensions == 1 else (rows.n, rows.d)
        if tuple(self._state.shape) != wanted:
            what = "columns" if self.memory.n_state_dimensions == 1 else "rows and columns"
            raise failure(
                "rows", f"have the {what} of the memory, {tuple(self._state.shape)}", wanted
            )
        self._state = self._state.to(rows.device)

    def state_dict(self) -> dict[str, Any]:
        """All that changes from step to step: the memory, the generator and the number of steps."""
        memory = None if self._state is None else self._state.clone()
        return {"memory": memory, "generator": self.generator.get_state(), "n_steps": self.n_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken, bit for bit."""
        memory, generator = check_step_state(
            state, self.memory.n_state_dimensions, repr(self.memory)
        )
        if memory is not None and self._state is not None and memory.shape != self._state.shape:
            raise failure(
                "state['memory']",
                f"have the shape {tuple(self._state.shape)} of the memory",
                tuple(memory.shape),
            )
        self.generator.set_state(generator)
        self._state = None if memory is None else memory.detach().clone()
        self._memory_norm = 0.0 if memory is None else length(memory)
        self.n_steps = state["n_steps"]
