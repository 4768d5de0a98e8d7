from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast._compile import WIDTH
from holdfast.geometry import Block, working_dtype
from holdfast.memory._augmented_rows import AugmentedRows
from holdfast.memory._memory import ResidualMemory, Units


@final
@dataclass(frozen=True, kw_only=True)
class RowMemory(ResidualMemory):
    r"""One residual for each row: what the experiments published with the paper ran.

    :math:`m_i \leftarrow \gamma a_i` off the block and 0 on it, where :math:`a_i = g_i + m_i / \gamma`. Row i must come from the same source at
    every step, and it must be the same sources that are bad: what a bad row leaves behind is charged to whoever stands in its place
    next. Takes as much memory as the rows. A row that is not finite leaves its residual as it was.

    Args:
        units: "parameter" (exact for plain SGD) or "gradient" (with momentum, Adam, or a learning rate that goes to zero).

    Reference: Karimireddy et al., *Error Feedback Fixes SignSGD and other Gradient Compression Schemes* (ICML 2019), Algorithm 1, for each row.

    Example:
        >>> RowMemory().n_state_dimensions
        2
    """

    units: Units = "parameter"

    name = "row"
    n_state_dimensions = 2

    def retain(
        self,
        augmented: AugmentedRows,
        block: Block,
        state: Tensor | None,
        lr: float | Tensor,
        total: Tensor | None,
    ) -> Tensor:
        rows, dtype = augmented.rows, working_dtype(augmented.rows.dtype)
        before = (
            torch.zeros(rows.n, rows.d, dtype=dtype, device=rows.device) if state is None else state
        )
        rate = 1.0 if self.units == "gradient" else lr
        following = before.clone()
        for start, chunk in rows.chunks(WIDTH):
            at = slice(start, start + chunk.shape[1])
            following[:, at] += chunk.to(dtype) * (rate[at] if isinstance(rate, Tensor) else rate)
        block.tiling.clear(following, block.tiles.to(rows.device))
        lost = ~augmented.finite.to(rows.device)
        following[lost] = before[lost]
        return following.where(rate > 0, before) if isinstance(rate, Tensor) else following
