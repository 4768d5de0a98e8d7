from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast._typing import Rate
from holdfast.geometry import Block, ColumnRows, working_dtype
from holdfast.robust_step._memory import ResidualMemory, memories
from holdfast.robust_step._robust_step import Units


@final
@memories.register
@dataclass(frozen=True, kw_only=True)
class RowMemory(ResidualMemory):
    r"""One residual per row, as in the experiments published with the paper.

    :math:`m_i \leftarrow \gamma a_i` off the block and 0 on it, where
    :math:`a_i = g_i + m_i / \gamma`. Row i must come from the same source at every step, and the
    same sources must be bad: otherwise the residual of a bad row is added to an honest one. The
    state takes as much memory as the rows. A row that is not finite does not change its residual.

    Args:
        units: "parameter" (exact for plain SGD) or "gradient".

    Reference: Karimireddy et al., *Error Feedback Fixes SignSGD and other Gradient Compression
    Schemes* (ICML 2019), Algorithm 1, for each row.

    Example:
        >>> RowMemory().n_state_dimensions
        2
    """

    units: Units = "parameter"

    name = "row"
    n_state_dimensions = 2

    def retain(
        self, augmented: ColumnRows, counts: Tensor, block: Block, state: Tensor | None, lr: Rate
    ) -> Tensor:
        following = augmented.matrix().to(working_dtype(augmented.dtype))
        following = self._in_units(following, block, state, lr)
        lost = (counts == 0).to(following.device)
        if bool(lost.any()):
            before = torch.zeros_like(following) if state is None else state
            following[lost] = before[lost]
        return following
