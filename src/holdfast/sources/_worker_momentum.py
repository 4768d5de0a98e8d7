from typing import Any, final

import torch
from torch import Tensor

from holdfast._compile import WIDTH
from holdfast._typing import TensorOrTensors
from holdfast.checks import check_share, failure
from holdfast.geometry import DenseRows, working_dtype


@final
class WorkerMomentum:
    r"""Rows with memory of their own past: :math:`m_i \leftarrow \beta m_i + (1 - \beta) g_i`, with :math:`m_i = g_i` at first.

    Attacks that hide inside the spread of honest rows lose their cover, because averaging over time shrinks that spread while a lie stays what
    it is. Row i must come from the same worker or client at every step. With rows that are cut from a shuffled batch it means nothing.

    A row that is not finite leaves its momentum as it was, and is handed on as NaN, for the rule to reject. The result stands in the
    momentum's own memory, which the next call overwrites; it takes as much memory as the rows.

    Args:
        beta: how much of the past is kept, in [0, 1).

    Reference: Karimireddy et al., *Learning from History for Byzantine Robust Optimization* (ICML 2021), Algorithm 2.

    Example:
        >>> momentum = WorkerMomentum(beta=0.5)
        >>> momentum(torch.tensor([[0.0], [8.0]])).combine(torch.ones(2))
        tensor([8.])
        >>> momentum(torch.tensor([[4.0], [8.0]])).combine(torch.tensor([1.0, 0.0]))
        tensor([2.])
    """

    def __init__(self, *, beta: float = 0.9) -> None:
        check_share("beta", beta, below=1.0)
        self.beta = beta
        self._state: Tensor | None = None

    def __repr__(self) -> str:
        return f"WorkerMomentum(beta={self.beta})"

    @torch.no_grad()
    def __call__(self, rows: DenseRows | TensorOrTensors) -> DenseRows:
        """The momentum of every row, with the layout of the rows."""
        rows = rows if isinstance(rows, DenseRows) else DenseRows(rows)
        if self._state is not None and self._state.shape != (rows.n, rows.d):
            raise failure(
                "rows",
                f"have the shape of the momentum, {tuple(self._state.shape)}",
                (rows.n, rows.d),
            )
        finite = rows.finite().to(rows.device)
        dtype = working_dtype(rows.dtype)
        if self._state is None:
            self._state = torch.full((rows.n, rows.d), torch.nan, dtype=dtype, device=rows.device)
        state = self._state = self._state.to(rows.device, dtype)
        begins = finite & state[:, 0].isnan()  # NaN stands for a momentum that has not begun
        state[begins] = 0.0
        past = torch.where(finite, self.beta, 1.0).to(state)[:, None]
        share = torch.where(begins, 1.0, 1.0 - self.beta).where(finite, 0.0).to(state)[:, None]
        is_clean = bool(finite.all())
        for start, chunk in rows.chunks(WIDTH):
            own = state[:, start : start + chunk.shape[1]]
            fresh = chunk.to(own) if is_clean else chunk.to(own).where(finite[:, None], 0.0)
            own.mul_(past).addcmul_(
                fresh, share
            )  # each term by itself: a difference of large entries could overflow
        if is_clean:
            return DenseRows(state, layout=rows.layout)
        shown = state.clone()
        shown[~finite] = torch.nan
        return DenseRows(shown, layout=rows.layout)

    def state_dict(self) -> dict[str, Any]:
        """The momentum of every row."""
        return {"momentum": None if self._state is None else self._state.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken."""
        if not isinstance(state, dict) or set(state) != {"momentum"}:
            raise failure(
                "state",
                "be a mapping with the key momentum",
                sorted(state) if isinstance(state, dict) else type(state).__name__,
            )
        momentum = state["momentum"]
        if momentum is not None and (
            not isinstance(momentum, Tensor)
            or momentum.ndim != 2
            or not momentum.is_floating_point()
        ):
            raise failure(
                "state['momentum']", "be None or a floating tensor [n, d]", type(momentum).__name__
            )
        self._state = None if momentum is None else momentum.detach().clone()
