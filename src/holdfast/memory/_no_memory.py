from dataclasses import dataclass
from typing import final

from torch import Tensor

from holdfast.geometry import Block, Rows
from holdfast.memory._augmented_rows import AugmentedRows
from holdfast.memory._memory import Memory


@final
@dataclass(frozen=True, kw_only=True)
class NoMemory(Memory):
    """Nothing is carried over: what is not in the block is lost.

    Example:
        >>> NoMemory().needs_lr
        False
    """

    name = "none"
    n_state_dimensions = 0
    needs_lr = False

    def augment(
        self,
        rows: Rows,
        state: Tensor | None,
        lr: float | Tensor,
        row_weights: Tensor | None = None,
    ) -> AugmentedRows:
        return AugmentedRows(rows, row_weights=row_weights)

    def retain(
        self,
        augmented: AugmentedRows,
        block: Block,
        state: Tensor | None,
        lr: float | Tensor,
        total: Tensor | None,
    ) -> None:
        return None
