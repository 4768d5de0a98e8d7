from dataclasses import dataclass

from torch import Tensor

from holdfast.geometry import Block, Outcome


@dataclass(frozen=True, eq=False)
class StepResult:
    r"""What a robust step made of the rows.

    Attributes:
        direction: [d] for the optimizer, zero off the block, with the rows' dtype and device.
        block: the columns that were moved; `block.columns` are their indices.
        weights: [n] coefficients of the rows in the direction (float64, CPU), or None where it is no combination of rows.
        rejected: bool [n] (CPU) rows that had no part in it.
        residual: the share :math:`1 - \xi` of the rows' squared norm that lies off the block, as the selector saw it.
        memory_norm: norm of what is carried over to the next step, in the memory's units.
        outcome: why the rule's solver stopped.
        gap: certified relative distance from its optimum; None for rules that do not optimise.
        steps: iterations that the solver made.
        reference_weight: coefficient of the call's `reference` in the direction, for rules that start from one.
    """

    direction: Tensor
    block: Block
    weights: Tensor | None
    rejected: Tensor
    residual: float
    memory_norm: float
    outcome: Outcome
    gap: float | None
    steps: int
    reference_weight: float
