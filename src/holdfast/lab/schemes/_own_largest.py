from typing import Any

import torch
from torch import Tensor

from holdfast.aggregators import Aggregator
from holdfast.lab.schemes._scheme import (
    Liars,
    SchemeRun,
    Sent,
    count_of,
    own_largest,
    sparse_bytes,
)
from holdfast.layout import Layout


class OwnLargestRun(SchemeRun):
    """Every worker sends the k largest entries of its update plus its memory, and keeps the rest.

    Rows are zero where nothing was sent.

    Args:
        layout: the parameters.
        rule: turns the rows of a round into a direction.
        share: k / d.
        n: number of workers.
        seed: root of the random numbers.
    """

    def __init__(
        self, layout: Layout, rule: Aggregator, *, share: float, n: int, seed: int
    ) -> None:
        super().__init__(layout, rule, n=n, seed=seed)
        self.k = count_of(share, layout.d)
        self._memory = torch.zeros(n, layout.d, device=layout.parameters[0].device)

    def send(self, updates: Tensor, present: Tensor, *, liars: Liars | None = None) -> Sent:
        self._memory += updates
        rows = own_largest(self._memory[present], self.k)
        self._memory[present] -= rows
        return Sent(rows, self.whole, sparse_bytes(self.k))

    def kept_norms(self) -> Tensor:
        norms: Tensor = torch.linalg.vector_norm(self._memory, dim=1)
        return norms

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"memory": self._memory.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._memory.copy_(state["memory"])
