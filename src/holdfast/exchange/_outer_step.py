from itertools import accumulate
from typing import Any, final

import torch
from torch import Tensor

from holdfast.checks import check_flag, check_positive, check_share, check_vector, failure
from holdfast.geometry import Block
from holdfast.layout import Layout


@final
class OuterStep:
    r"""Moves the parameters by the direction of a round, on its block only.

    :math:`x \leftarrow x - \eta\, v` on the block, where :math:`\eta` is `lr` and v the direction
    or, with `momentum` :math:`\mu`, :math:`v \leftarrow \mu v + \text{direction}` (with `nesterov`,
    the step is :math:`\text{direction} + \mu v`). The velocity of a column changes only in rounds
    that send it. The rule is applied before the momentum, so the momentum never contains a rejected
    update.

    Three methods are special cases. With updates of H local steps, everything sent and the rule
    "mean", it is federated averaging for `lr=1`, and DiLoCo for
    `lr=0.7, momentum=0.9, nesterov=True`. With a few percent sent and no momentum it is SparseLoCo,
    except that all workers send the same block.

    Reference: Douillard et al., *DiLoCo: Distributed Low-Communication Training of Language Models*
    (2023), Algorithm 1; Sarfi et al., *Communication Efficient LLM Pre-training with SparseLoCo*
    (2025).

    Example:
        >>> from holdfast.geometry import Tiling
        >>> x = torch.zeros(4, requires_grad=True)
        >>> step, block = OuterStep(Layout([x]), lr=0.5), Block(Tiling((4,), 2), torch.tensor([1]))
        >>> step(block, torch.tensor([2.0, 4.0]))
        >>> x.detach()
        tensor([ 0.,  0., -1., -2.])
    """

    def __init__(
        self, layout: Layout, *, lr: float = 1.0, momentum: float = 0.0, nesterov: bool = False
    ) -> None:
        check_positive("lr", lr)
        check_share("momentum", momentum, below=1.0)
        check_flag("nesterov", nesterov)
        if nesterov and momentum == 0.0:
            raise failure("nesterov", "be False without momentum", True)
        self.lr, self.momentum, self.nesterov = lr, momentum, nesterov
        self._layout = layout
        self._velocity = torch.zeros_like(layout.values()) if momentum else None

    @torch.no_grad()
    def __call__(self, block: Block, direction: Tensor) -> None:
        """Move the parameters by the direction [k] on the block."""
        check_vector("direction", direction, len(block))
        tiling, start = block.tiling, 0
        if self._velocity is not None:
            tiles = block.tiles.to(direction.device)
            velocity = self.momentum * tiling.take(self._velocity, tiles) + direction
            tiling.put(self._velocity, tiles, velocity)
            direction = direction + self.momentum * velocity if self.nesterov else velocity
        offsets = list(accumulate(self._layout.sizes, initial=0))
        columns = block.columns
        for section, count in tiling.by_section(block.tiles).items():
            parameter = self._layout.parameters[section]
            at = (columns[start : start + count] - offsets[section]).to(parameter.device)
            moved = -self.lr * direction[start : start + count].to(parameter)
            start += count
            if parameter.is_contiguous():
                parameter.view(-1).index_add_(0, at, moved)
            else:  # in another memory format the columns are those of the flat copy
                flat = parameter.flatten().index_add_(0, at, moved)
                parameter.copy_(flat.view_as(parameter))

    def state_dict(self) -> dict[str, Any]:
        """The velocity, if there is momentum."""
        return {"velocity": None if self._velocity is None else self._velocity.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state exactly."""
        velocity = state["velocity"]
        if (velocity is None) != (self._velocity is None):
            has = "no" if velocity is None else "a"
            raise failure("state['velocity']", f"fit momentum={self.momentum}", f"{has} velocity")
        if velocity is not None:
            check_vector("state['velocity']", velocity, self._layout.d)
            self._velocity = velocity.clone()
