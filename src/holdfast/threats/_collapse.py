from dataclasses import dataclass
from typing import final

from torch import Tensor

from holdfast.threats._attack import Attack
from holdfast.threats._attack_context import AttackContext


@final
@dataclass(frozen=True, kw_only=True)
class Collapse(Attack):
    r"""Minus the sum of all honest rows, shared among the bad ones: the mean of all rows is zero.

    Each of m bad rows sends :math:`-\frac{1}{m} \sum_{i \text{ honest}} g_i`. One row suffices, which is why the mean has breakdown point 0.
    Exact up to rounding in the rows' dtype.

    Reference: the paper's introduction, where a single bad row sends minus the sum of the others.

    Example:
        >>> Collapse()(torch.tensor([[1.0], [3.0], [9.0]]), torch.tensor([False, False, True])).mean(0)
        tensor([0.])
    """

    name = "collapse"
    aim = (
        "The length of the mean of all rows, which becomes zero: training by the mean stands still."
    )
    looks_at_honest = True

    def _bad_rows(self, context: AttackContext) -> Tensor:
        return (-context.honest.sum(0) / context.n_bad) * context.unit
