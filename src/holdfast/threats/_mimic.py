from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.threats._attack import Attack, attacks
from holdfast.threats._attack_context import AttackContext, State, of_length_one


@final
@attacks.register
@dataclass(frozen=True, kw_only=True)
class Mimic(Attack):
    r"""Copies of one honest row, always on the same side of the mean.

    All bad rows send :math:`g_{i^*}`, :math:`i^* = \arg\max_i z \cdot g_i` over the honest rows
    (the first of equals), where z is the direction in which honest rows differ most. It is learned
    over the steps by Oja's rule. With
    :math:`u_t = \sum_i (g_i - \mu) \langle g_i - \mu, s_t \rangle` over the honest rows of step t,
    the state is the vector

    .. math:: s_{t+1} = s_t + u_t / \|u_t\|, \qquad z_t = s_t / \|s_t\|,

    and :math:`s_0` is the longest of the first deviations :math:`g_i - \mu`, scaled to length 1.
    The state grows by about one per step, so a new step counts 1 / (t + 1). No rule can distinguish
    a copy from the original. This matters if honest rows differ (each worker has its own data): one
    of them then counts many times.

    Reference: Karimireddy et al., *Byzantine-Robust Learning on Heterogeneous Datasets via
    Bucketing* (ICLR 2022), the mimic attack and its appendix. Deviations: :math:`u_t` is scaled to
    length 1, so that the size of the gradients does not matter; z starts from the rows instead of
    at random; learning does not stop after a warm-up.

    Example:
        >>> rows = torch.tensor([[0.0, 5.0], [1.0, 0.0], [0.0, -1.0], [9.0, 9.0]])
        >>> Mimic()(rows, torch.tensor([False, False, False, True]))[3]
        tensor([0., 5.])
    """

    name = "mimic"
    aim = "The weight of one honest row where honest rows differ, also with robust rules."
    looks_at_honest = True
    takes_state = True

    def _bad_rows(self, context: AttackContext) -> Tensor:
        chosen = int((context.deviations @ context.once(_state)).argmax())
        return context.rows[~context.mask][chosen]

    def _learn(self, context: AttackContext) -> State:
        deviations, state = context.deviations, context.once(_state)
        return state + of_length_one(deviations.T @ (deviations @ of_length_one(state)))


def _state(context: AttackContext) -> Tensor:
    """[d] the state; at the first step, the longest deviation."""
    context.check_state(context.d)
    deviations = context.deviations
    if context.state is not None:
        return context.state.to(deviations)
    return of_length_one(deviations[int(torch.linalg.vector_norm(deviations, dim=1).argmax())])
