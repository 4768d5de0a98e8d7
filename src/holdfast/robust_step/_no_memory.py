from dataclasses import dataclass
from typing import final

from torch import Tensor

from holdfast._typing import Rate
from holdfast.geometry import Block, ColumnRows
from holdfast.robust_step._memory import Memory, memories


@final
@memories.register
@dataclass(frozen=True, kw_only=True)
class NoMemory(Memory):
    """Carries nothing: the part of the rows off the block is lost.

    Example:
        >>> NoMemory().needs_lr
        False
    """

    name = "none"
    n_state_dimensions = 0
    needs_lr = False

    def augment(self, rows: ColumnRows, state: Tensor | None, lr: Rate) -> ColumnRows:
        return rows

    def retain(
        self, augmented: ColumnRows, counts: Tensor, block: Block, state: Tensor | None, lr: Rate
    ) -> None:
        return None
