from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.threats._attack import Attack, check_state
from holdfast.threats._attack_context import AttackContext, State
from holdfast.threats._perturbation import of_length_one


@final
@dataclass(frozen=True, kw_only=True)
class Mimic(Attack):
    r"""Copies of one honest row, always from the same side.

    All bad rows send :math:`g_{i^*}`, :math:`i^* = \arg\max_i z \cdot g_i` over the honest rows (of equals, the first), where z is the
    direction in which honest rows differ most. It is learned over the steps by Oja's rule. With
    :math:`u_t = \sum_i (g_i - \mu) \langle g_i - \mu, s_t \rangle` over the honest rows of step t, the state is the vector

    .. math:: s_{t+1} = s_t + u_t / \|u_t\|, \qquad z_t = s_t / \|s_t\|,

    and :math:`s_0` is the longest of the first deviations :math:`g_i - \mu`, of length 1. As the state grows by one at a step, a new step counts
    1 / (t + 1). No rule can tell a copy from the original. It matters where rows differ by nature (each worker with data of its
    own): one of them then counts for many.

    Reference: Karimireddy et al., *Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing* (ICLR 2022), the mimic attack
    and its appendix. Deviations: :math:`u_t` is taken at length 1, so that the size of the gradients does not matter; z starts from the rows, not at random; and
    it goes on learning after a warm-up.

    Example:
        >>> rows = torch.tensor([[0.0, 5.0], [1.0, 0.0], [0.0, -1.0], [9.0, 9.0]])
        >>> Mimic()(rows, torch.tensor([False, False, False, True]))[3]
        tensor([0., 5.])
    """

    name = "mimic"
    aim = "The weight of one honest row in the direction where honest rows differ; robust rules are moved as well."
    looks_at_honest = True
    takes_state = True

    def _bad_rows(self, context: AttackContext) -> Tensor:
        deviations = context.honest - context.mean
        chosen = int((deviations @ _memory(context, deviations)).argmax())
        return context.rows[~context.mask][chosen]

    def _learn(self, context: AttackContext) -> State:
        deviations = context.honest - context.mean
        memory = _memory(context, deviations)
        return memory + of_length_one(deviations.T @ (deviations @ of_length_one(memory)))


def _memory(context: AttackContext, deviations: Tensor) -> Tensor:
    """[d] what the attackers remember; at first, the longest deviation."""
    check_state(context.state, (context.d,))
    if context.state is not None:
        return context.state.to(deviations)
    return of_length_one(deviations[int(torch.linalg.vector_norm(deviations, dim=1).argmax())])
