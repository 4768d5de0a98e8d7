from dataclasses import dataclass
from typing import final

from torch import Tensor

from holdfast._typing import Rate
from holdfast.geometry import Block, ColumnRows, working_dtype
from holdfast.robust_step._memory import ResidualMemory, memories
from holdfast.robust_step._robust_step import Units


@final
@memories.register
@dataclass(frozen=True, kw_only=True)
class MeanMemory(ResidualMemory):
    r"""The mean of all rows off the block, as in the paper: one bad row can move it anywhere.

    :math:`m \leftarrow \gamma \frac{1}{n} \sum_i a_i` off the block and 0 on it, where
    :math:`a_i = g_i + m / \gamma`. The geometric median is translation equivariant, so anything
    that bad rows add to m passes through it: with this memory a robust rule has breakdown point 0.
    Rows that are not finite are left out, and row weights make it a weighted mean.

    Args:
        units: "parameter" (exact for plain SGD) or "gradient".

    Reference: the paper's Algorithm 1, *Memory Augmentation* and *Memory Update*.

    Example:
        >>> MeanMemory().needs_lr
        True
    """

    units: Units = "parameter"

    name = "mean"
    n_state_dimensions = 1

    def retain(
        self, augmented: ColumnRows, counts: Tensor, block: Block, state: Tensor | None, lr: Rate
    ) -> Tensor | None:
        if block.is_whole and isinstance(lr, float):
            return None  # nothing is left out
        mean = augmented.combine(counts / counts.sum()).to(working_dtype(augmented.dtype))
        return self._in_units(mean, block, state, lr)
