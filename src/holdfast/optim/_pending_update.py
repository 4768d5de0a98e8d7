"""The update of the parameters that an optimizer has made and that is not yet applied."""

from typing import Any, final

import torch
from torch import Generator, Tensor

from holdfast.checks import check_count, failure
from holdfast.layout import Layout
from holdfast.robust_step import Delivered, check_carried, deliver
from holdfast.selectors import Selector

KEYS = {"update", "n_delivered"}


@final
class PendingUpdate:
    """A vector over the parameters, from which blocks are delivered."""

    def __init__(self, update: Tensor | None = None, n_delivered: int = 0) -> None:
        self._update = update
        self._n_delivered = n_delivered

    @torch.no_grad()
    def deliver(
        self, layout: Layout, before: Tensor, selector: Selector, generator: Generator
    ) -> Delivered:
        """Add the parameters' change since `before` [d], and apply only a block of the sum.

        `before` is overwritten. The parameters become their old values plus the block.
        """
        total = layout.values().sub_(before)
        if self._update is not None:
            total += self._update.to(total.device)
        delivered = deliver(
            total, selector, layout.sizes, step=self._n_delivered, generator=generator
        )
        layout.write_values(before.add_(delivered.now))
        self._update = delivered.later
        self._n_delivered += 1
        return delivered

    def state_dict(self) -> dict[str, Any]:
        """What is pending, and the number of blocks delivered."""
        update = None if self._update is None else self._update.clone()
        return {"update": update, "n_delivered": self._n_delivered}

    @classmethod
    def from_state(cls, state: object) -> "PendingUpdate":
        """The pending update of a `state_dict`."""
        if not isinstance(state, dict) or set(state) != KEYS:
            got = sorted(map(str, state)) if isinstance(state, dict) else type(state).__name__
            raise failure("pending", f"be a mapping with the keys {', '.join(sorted(KEYS))}", got)
        check_count("pending['n_delivered']", state["n_delivered"])
        update = check_carried("pending['update']", state["update"], 1, "RobustOptimizer")
        return cls(None if update is None else update.detach().clone(), state["n_delivered"])
