from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.threats._attack import Attack, attacks
from holdfast.threats._attack_context import AttackContext, State


@final
@attacks.register
@dataclass(frozen=True, kw_only=True)
class LazyRows(Attack):
    r"""The gradient of the previous step, sent again.

    Row i sends :math:`g_i^{(t-1)}`, and zero at the first step. The state is the rows [n, d] of the
    previous step. Such rows look honest to every rule; with a bad share :math:`\psi`, only
    :math:`1 - \psi` of the mean is fresh.

    Example:
        >>> attack, mask = LazyRows(), torch.tensor([False, True])
        >>> first, second = torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [4.0]])
        >>> attack(second, mask, state=attack.learn(first, mask))
        tensor([[3.],
                [2.]])
    """

    name = "lazy-rows"
    aim = "The share of the direction that comes from the current batch."
    takes_state = True

    def _bad_rows(self, context: AttackContext) -> Tensor:
        context.check_state(*context.rows.shape)
        if context.state is None:
            return torch.zeros_like(context.own)
        return context.state.to(context.rows.device)[context.mask]

    def _learn(self, context: AttackContext) -> State:
        return context.rows.clone()
