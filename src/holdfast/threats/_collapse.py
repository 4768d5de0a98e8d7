from dataclasses import dataclass
from typing import final

from torch import Tensor

from holdfast.threats._attack import Attack, attacks
from holdfast.threats._attack_context import AttackContext


@final
@attacks.register
@dataclass(frozen=True, kw_only=True)
class Collapse(Attack):
    r"""Minus the sum of the honest rows, shared by the bad rows: the mean of all rows is zero.

    Each of m bad rows sends :math:`-\frac{1}{m} \sum_{i \text{ honest}} g_i`. One bad row suffices,
    which shows that the mean has breakdown point 0. Exact up to rounding in the rows' dtype.

    Reference: the paper's introduction, where one bad row sends minus the sum of the others.

    Example:
        >>> rows, mask = torch.tensor([[1.0], [3.0], [9.0]]), torch.tensor([False, False, True])
        >>> Collapse()(rows, mask).mean(0)
        tensor([0.])
    """

    name = "collapse"
    aim = "The length of the mean, which becomes zero: training by the mean makes no progress."
    looks_at_honest = True

    def _bad_rows(self, context: AttackContext) -> Tensor:
        return (-context.honest.sum(0) / context.n_bad) * context.unit
