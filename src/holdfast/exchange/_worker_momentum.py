from typing import Any, final

import torch
from torch import Tensor

from holdfast._compile import WIDTH
from holdfast._typing import TensorOrTensors
from holdfast.checks import check_share, failure
from holdfast.geometry import DenseRows, working_dtype


@final
class WorkerMomentum:
    r"""Momentum of each row: :math:`m_i \leftarrow \beta m_i + (1 - \beta) g_i`, first :math:`g_i`.

    Averaging over time shrinks the spread of honest rows but not a constant lie, so attacks that
    hide in that spread become visible. Row i must come from the same worker or client at every
    step, which rows cut from a shuffled batch do not.

    A row that is not finite does not change its momentum and is returned as NaN, so that the rule
    rejects it. The result shares memory with the state, which the next call overwrites. The state
    takes as much memory as the rows.

    Args:
        beta: weight of the past, in [0, 1).

    Reference: Karimireddy et al., *Learning from History for Byzantine Robust Optimization* (ICML
    2021), Algorithm 2.

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
            requirement = f"have the shape of the momentum, {tuple(self._state.shape)}"
            raise failure("rows", requirement, (rows.n, rows.d))
        finite = rows.finite().to(rows.device)
        dtype = working_dtype(rows.dtype)
        if self._state is None:
            self._state = torch.full((rows.n, rows.d), torch.nan, dtype=dtype, device=rows.device)
        state = self._state = self._state.to(rows.device, dtype)
        begins = finite & state[:, 0].isnan()  # NaN marks a row without momentum
        state[begins] = 0.0
        past = torch.where(finite, self.beta, 1.0).to(state)[:, None]
        share = torch.where(begins, 1.0, 1.0 - self.beta).where(finite, 0.0).to(state)[:, None]
        is_clean = bool(finite.all())
        for start, chunk in rows.chunks(WIDTH):
            own = state[:, start : start + chunk.shape[1]]
            fresh = chunk.to(own) if is_clean else chunk.to(own).where(finite[:, None], 0.0)
            # Not own += share * (fresh - own): the difference of large entries could overflow.
            own.mul_(past).addcmul_(fresh, share)
        if is_clean:
            return DenseRows(state, layout=rows.layout)
        shown = state.clone()
        shown[~finite] = torch.nan
        return DenseRows(shown, layout=rows.layout)

    def state_dict(self) -> dict[str, Any]:
        """The momentum of every row."""
        return {"momentum": None if self._state is None else self._state.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the momentum from `state`."""
        if not isinstance(state, dict) or set(state) != {"momentum"}:
            got = sorted(state) if isinstance(state, dict) else type(state).__name__
            raise failure("state", "be a mapping with the key momentum", got)
        momentum = state["momentum"]
        is_matrix = isinstance(momentum, Tensor) and momentum.ndim == 2
        if momentum is not None and not (is_matrix and momentum.is_floating_point()):
            requirement = "be None or a floating tensor [n, d]"
            raise failure("state['momentum']", requirement, type(momentum).__name__)
        self._state = None if momentum is None else momentum.detach().clone()
