from dataclasses import dataclass, replace

from torch import Tensor

from holdfast.aggregators import Aggregate
from holdfast.geometry import Block


@dataclass(frozen=True, eq=False, repr=False)
class StepResult:
    r"""The result of a step.

    Attributes:
        direction: [d] for the optimizer, zero off the block, with the rows' dtype and device.
        block: the columns that are moved; `block.columns` are their indices.
        aggregate: the result of the rule, with the solver's outcome and gap.
        residual: the share :math:`1 - \xi` of the squared norm that lies off the block.
        carried_norm: norm of the memory after the step.
    """

    direction: Tensor
    block: Block
    aggregate: Aggregate
    residual: float
    carried_norm: float = 0.0

    @property
    def rejected(self) -> Tensor:
        """Bool [n] (CPU) rows that the rule left out."""
        return self.aggregate.rejected

    @property
    def weights(self) -> Tensor | None:
        """[n] coefficients of the rows (float64, CPU), or None if the rule has none."""
        return self.aggregate.weights

    def carrying(self, norm: float) -> "StepResult":
        """The result with the norm of the memory."""
        return replace(self, carried_norm=norm)

    def __repr__(self) -> str:
        return (
            f"StepResult({len(self.block)} of {len(self.direction)} columns, "
            f"residual={self.residual:.3g}, {self.aggregate!r})"
        )
