from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.threats._attack import Attack
from holdfast.threats._attack_context import AttackContext


@final
@dataclass(frozen=True, kw_only=True)
class ZeroRows(Attack):
    r"""Nothing: rows of zeros, as from a worker that did not compute.

    With a bad share :math:`\psi` the mean is :math:`1 - \psi` times the honest one, and training by the mean is that much slower.

    Example:
        >>> ZeroRows()(torch.tensor([[1.0], [2.0]]), torch.tensor([False, True]))
        tensor([[1.],
                [0.]])
    """

    name = "zero-rows"
    aim = "The length of the mean, which shrinks by the bad share: training by the mean slows down."

    def _bad_rows(self, context: AttackContext) -> Tensor:
        return torch.zeros_like(context.own)
