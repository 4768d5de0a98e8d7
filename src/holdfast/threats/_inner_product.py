from dataclasses import dataclass
from typing import final

from torch import Tensor

from holdfast.checks import check_positive
from holdfast.threats._attack import Attack, AttackContext


@final
@dataclass(frozen=True, kw_only=True)
class InnerProduct(Attack):
    r"""Inner product manipulation: the honest mean, reversed.

    All bad rows send :math:`-\epsilon \mu`, where :math:`\mu` is the mean of the honest rows and
    :math:`\epsilon` is `factor`. With m of n rows bad, the mean is reversed for
    :math:`\epsilon > (n - m) / m`. Small factors (0.1, 0.5) hardly change the mean, but the bad
    rows are so close together that median-like rules follow them.

    Reference: Xie et al., *Fall of Empires: Breaking Byzantine-tolerant SGD by Inner Product
    Manipulation* (UAI 2019), the attack on the mean, where `factor` is the paper's epsilon.

    Example:
        >>> rows, mask = torch.tensor([[1.0], [3.0], [9.0]]), torch.tensor([False, False, True])
        >>> InnerProduct(factor=0.5)(rows, mask)[2]
        tensor([-1.])
    """

    factor: float = 2.0

    name = "inner-product"
    aim = "The inner product of the direction and the honest mean: it falls, even below zero."
    looks_at_honest = True

    def __post_init__(self) -> None:
        check_positive("factor", self.factor)

    def _bad_rows(self, context: AttackContext) -> Tensor:
        return (-self.factor * context.mean) * context.unit
