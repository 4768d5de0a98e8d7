from typing import final

import torch
from torch import Tensor

from holdfast.layout import Layout


@final
class LocalSteps:
    """The update of a worker that steps its own optimizer between two rounds.

    The update is the shared parameters minus the worker's parameters after its steps. It replaces
    the learning rate times the gradient and has the same sign.

    Args:
        layout: the worker's parameters, which are the shared ones now.

    Example:
        >>> x = torch.ones(2, requires_grad=True)
        >>> local = LocalSteps(Layout([x]))
        >>> with torch.no_grad():
        ...     x -= 0.25  # any optimizer, any number of steps
        >>> local.update(), x.detach()
        (tensor([0.2500, 0.2500]), tensor([1., 1.]))
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.shared = layout.values()
        """[d] the shared parameters, from which the worker's own steps began."""

    @torch.no_grad()
    def update(self) -> Tensor:
        """[d] the update; the parameters are the shared ones again."""
        update = self.shared - self._layout.values()
        self._layout.write_values(self.shared)
        return update

    def begin(self) -> None:
        """Take the present parameters as the shared ones, after a round has moved them."""
        self.shared = self._layout.values()
