"""The part of an optimizer's updates that is not applied yet."""

from typing import final

import torch
from torch import Tensor

from holdfast.checks import failure
from holdfast.errors import NonFiniteMemoryError
from holdfast.layout import Layout
from holdfast.robust_step import Delivered, Step, check_carried, deliver


@final
class PendingUpdate:
    """A vector over the parameters, from which blocks are delivered.

    Args:
        update: [d] the pending update; None for zero.
    """

    def __init__(self, update: Tensor | None = None) -> None:
        self._update = update

    def check_fits(self, layout: Layout) -> None:
        """Check that the pending update belongs to parameters of this layout."""
        if self._update is not None and len(self._update) != layout.d:
            requirement = f"have the {len(self._update)} columns of the pending update"
            raise failure("rows", requirement, layout.d)

    @torch.no_grad()
    def deliver(self, layout: Layout, before: Tensor, step: Step) -> Delivered:
        """Add the parameters' change since `before` [d] to the pending update, and apply a block of
        it.

        `before` is overwritten. The parameters become their old values plus the block that the
        selector of `step` chooses. An update that is not finite is undone and raises an error.
        """
        total = layout.values().sub_(before)
        if self._update is not None:
            total += self._update.to(total.device)
        if not bool(torch.isfinite(torch.linalg.vector_norm(total, torch.inf))):
            layout.write_values(before)
            raise NonFiniteMemoryError("`update` must be finite, got NaN or infinity.")
        try:
            delivered = deliver(
                total, step.selector, layout.sizes, step=step.n_steps, generator=step.generator
            )
        except BaseException:
            layout.write_values(before)
            raise
        # The optimizer has written its own update already, and without a rounded difference.
        if self._update is not None or delivered.later is not None:
            layout.write_values(before.add_(delivered.now))
        self._update = delivered.later
        return delivered

    def state(self) -> Tensor | None:
        """[d] a copy of the pending update."""
        return None if self._update is None else self._update.clone()

    @classmethod
    def from_state(cls, state: object) -> "PendingUpdate":
        """The pending update with this state."""
        update = check_carried("state_dict['holdfast']['pending']", state, 1, "RobustOptimizer")
        return cls(None if update is None else update.detach().clone())
