from dataclasses import dataclass
from typing import final

from torch import Tensor

from holdfast.geometry import Block
from holdfast.memory._augmented_rows import AugmentedRows
from holdfast.memory._memory import ResidualMemory, Units


@final
@dataclass(frozen=True, kw_only=True)
class MeanMemory(ResidualMemory):
    r"""The mean of all rows off the block: the paper's memory, which one bad row can move anywhere.

    :math:`m \leftarrow \gamma \frac{1}{n} \sum_i a_i` off the block and 0 on it, where :math:`a_i = g_i + m / \gamma`. The geometric median is
    translation equivariant, so whatever bad rows put into m passes through it: with this memory a robust rule has breakdown
    point 0. Rows that are not finite have no part, and
    row weights make it a weighted mean. Use :class:`RobustMemory` where rows may be bad.

    Args:
        units: "parameter" (exact for plain SGD) or "gradient" (with momentum, Adam, or a learning rate that goes to zero).

    Reference: the paper's Algorithm 1, *Memory Augmentation* and *Memory Update*.

    Example:
        >>> MeanMemory().needs_lr
        True
    """

    units: Units = "parameter"

    name = "mean"
    n_state_dimensions = 1

    def retain(
        self,
        augmented: AugmentedRows,
        block: Block,
        state: Tensor | None,
        lr: float | Tensor,
        total: Tensor | None,
    ) -> Tensor:
        counts = augmented.counts
        return self._in_units(augmented.combine(counts / counts.sum()), block, state, lr)
