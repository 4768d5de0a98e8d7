"""The robust step: aggregate, then deliver."""

from typing import Literal, final

import torch
from torch import Tensor

from holdfast._typing import Rate
from holdfast.aggregators import Aggregator, StepArguments
from holdfast.checks import failure
from holdfast.geometry import Rows, working_dtype
from holdfast.robust_step._deliver import deliver
from holdfast.robust_step._step import Step
from holdfast.robust_step._step_result import StepResult
from holdfast.selectors import Everything, Selector

Units = Literal["parameter", "gradient"]
"""The units of what a step carries: those of the parameters, or those of their gradients."""


@final
class RobustStep(Step):
    r"""Applies a rule, returns a block of its result, and carries the rest to later steps.

    With rows :math:`g_i`, learning rate :math:`\gamma` and the memory m:

    1. aggregate: :math:`t = A(g_1, \dots, g_n) + m / \gamma` with the rule A;
    2. deliver: the direction is t on the block that the `selector` chooses by t, zero elsewhere;
    3. carry: :math:`m \leftarrow \gamma t` off the block, zero on it.

    Nothing is lost: :math:`\gamma` times the direction plus m is :math:`\gamma t` (of rows in half
    precision the direction is rounded to their dtype). The rule gets the whole rows, so the step is
    as robust as the rule, with any rule and any selector. For a translation-equivariant rule t is
    the aggregate of the rows with the memory added to each, :math:`A(g_1 + m / \gamma, \dots)`, as
    in the paper. The paper's own order (select, then aggregate) is :class:`SelectFirstStep`.

    In one process a block saves no time; :class:`~holdfast.optim.RobustOptimizer` delivers after
    the optimizer, so that momentum and moments get the whole aggregate.

    Args:
        rule: the rule, or its name.
        selector: chooses the columns that are moved; all of them by default.
        units: "parameter" (m is the pending change of the parameters by plain SGD; calls pass `lr`,
            and m stays correct when it changes) or "gradient" (m is the pending part of the
            directions, and :math:`\gamma` is 1).
        generator: source of random numbers, on the CPU; by default one with a fixed seed.

    Reference: Acharya et al., *Robust Training in High Dimensions via Block Coordinate Geometric
    Median Descent* (AISTATS 2022), Algorithm 1. Deviation: the order.

    Example:
        >>> from holdfast.selectors import TopNorm
        >>> step = RobustStep("geometric-median", selector=TopNorm(fraction=0.5, tile=1))
        >>> result = step(torch.ones(5, 8), lr=0.1)
        >>> result.direction.count_nonzero().item(), round(result.residual, 6)
        (4, 0.5)
        >>> round(result.carried_norm, 6)  # 0.1 is pending in each of the 4 other columns
        0.2
    """

    n_state_dimensions = 1

    def __init__(
        self,
        rule: Aggregator | str,
        *,
        selector: Selector | None = None,
        units: Units = "parameter",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(rule, Everything() if selector is None else selector, generator)
        check_units(units)
        self.units = units

    def __repr__(self) -> str:
        return f"RobustStep({self.rule!r}, selector={self.selector!r}, units={self.units!r})"

    @property
    def needs_lr(self) -> bool:
        return self.units == "parameter" and not self.selector.takes_everything

    def _step(
        self, rows: Rows, rate: Rate, arguments: StepArguments
    ) -> tuple[StepResult, Tensor | None]:
        aggregate = self._apply_rule(rows, arguments)
        if self.selector.takes_everything:
            block = self.selector.select(
                self.selector.tiling(rows.sections),
                aggregate.vector[:0],
                step=self.n_steps,
                generator=self.generator,
            )
            return StepResult(aggregate.vector, block, aggregate, 0.0), None
        is_frozen = isinstance(rate, float) and rate == 0.0
        fresh = aggregate.vector.to(working_dtype(rows.dtype))
        if self._state is None or is_frozen:
            total = fresh.clone()
        elif isinstance(rate, float):
            total = torch.add(fresh, self._state, alpha=1.0 / rate)
        else:
            total = fresh + (self._state / rate).where(rate > 0, 0.0)
        delivered = deliver(
            total, self.selector, rows.sections, step=self.n_steps, generator=self.generator
        )
        direction = delivered.now.to(rows.dtype)
        result = StepResult(direction, delivered.block, aggregate, delivered.residual)
        return result, self._state if is_frozen else self._owed(delivered.later, rate)

    def _owed(self, later: Tensor | None, rate: Rate) -> Tensor | None:
        """The part for later steps, in the units of the state."""
        if isinstance(rate, float):
            return None if later is None else later.mul_(rate)
        # Where the rate is zero nothing was applied, so the memory stays.
        before = torch.zeros_like(rate) if self._state is None else self._state
        left = torch.zeros_like(rate) if later is None else later * rate
        return left.where(rate > 0, before)


def check_units(units: object) -> None:
    """Check for the name of the memory's units."""
    if units not in ("parameter", "gradient"):
        raise failure("units", "be 'parameter' or 'gradient'", repr(units))
