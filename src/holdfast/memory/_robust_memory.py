from dataclasses import dataclass
from typing import final

from torch import Tensor

from holdfast.geometry import Block
from holdfast.memory._augmented_rows import AugmentedRows
from holdfast.memory._memory import ResidualMemory, Units


@final
@dataclass(frozen=True, kw_only=True)
class RobustMemory(ResidualMemory):
    r"""The robustly weighted sum of the rows off the block: the memory that keeps the rule's breakdown point.

    :math:`m \leftarrow \gamma \sum_i w_i a_i` off the block and 0 on it, where :math:`a_i = g_i + m / \gamma` and w are the weights that the rule
    finds from a sketch of the whole rows. The direction is the same sum on the block, so
    :math:`\gamma\, \mathrm{direction} + m = \gamma \sum_i w_i a_i` exactly: the rule's aggregate of the whole rows, delivered block by block.
    (To rounding; rows in half precision round the direction. With a rule that looks at single coordinates, which has no weights, the memory follows the
    geometric median of the sketch.)

    It needs a selector under which every column that holds anything has a chance of being drawn; else the weights would be found from
    the block alone, and rows could lie elsewhere.

    Args:
        units: "parameter" (exact for plain SGD) or "gradient" (with momentum, Adam, or a learning rate that goes to zero).

    Reference: none; the paper's memory is :class:`MeanMemory`.

    Example:
        >>> RobustMemory().follows_weights
        True
    """

    units: Units = "parameter"

    name = "robust"
    follows_weights = True
    n_state_dimensions = 1

    def retain(
        self,
        augmented: AugmentedRows,
        block: Block,
        state: Tensor | None,
        lr: float | Tensor,
        total: Tensor | None,
    ) -> Tensor:
        assert total is not None
        return self._in_units(total, block, state, lr)
