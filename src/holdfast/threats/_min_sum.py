from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.threats._attack import Attack
from holdfast.threats._attack_context import AttackContext
from holdfast.threats._perturbation import Direction, check_direction, perturbation


@final
@dataclass(frozen=True, kw_only=True)
class MinSum(Attack):
    r"""As far against the honest mean as the sum of squared distances of some honest row allows.

    All bad rows send :math:`\mu - \gamma p`, p as in :class:`MinMax`, with the largest :math:`\gamma` such that
    :math:`\sum_i \|\mu - \gamma p - g_i\|^2 \le \max_i \sum_j \|g_i - g_j\|^2` over honest rows. Deviations from the mean cancel in both sums, which leaves

    .. math:: \gamma = \max_i \|g_i - \mu\| \,/\, \|p\|,

    and 0 where p is zero: a bad row is as far from the honest mean as the farthest honest row.

    Reference: Shejwalkar and Houmansadr, *Manipulating the Byzantine: Optimizing Model Poisoning Attacks and Defenses for Federated
    Learning* (NDSS 2021), the attack "Min-Sum". Deviation: the exact optimum instead of a search.

    Example:
        >>> MinSum()(torch.tensor([[1.0], [3.0], [9.0]]), torch.tensor([False, False, True]))[2]
        tensor([1.])
    """

    direction: Direction = "unit"

    name = "min-sum"
    aim = "The bias of the direction against the honest mean, from no farther than honest rows are."
    looks_at_honest = True

    def __post_init__(self) -> None:
        check_direction(self.direction)

    def _bad_rows(self, context: AttackContext) -> Tensor:
        p = perturbation(context, self.direction)
        farthest = torch.linalg.vector_norm(context.honest - context.mean, dim=1).max()
        length = torch.linalg.vector_norm(p)
        gamma = torch.where(length > 0, farthest / length, 0.0)
        return (context.mean - gamma * p) * context.unit
