from dataclasses import dataclass
from typing import Literal, final

from torch import Tensor

from holdfast.checks import check_positive
from holdfast.threats._attack import NOTHING, RULE, Attack, attacks
from holdfast.threats._attack_context import AttackContext
from holdfast.threats._rule_trials import most_harmful_factor


@final
@attacks.register
@dataclass(frozen=True, kw_only=True)
class InnerProduct(Attack):
    r"""Inner product manipulation: the honest mean, reversed.

    All bad rows send :math:`-\epsilon \mu`, where :math:`\mu` is the mean of the honest rows and
    :math:`\epsilon` is `factor`. With m of n rows bad, the mean is reversed for
    :math:`\epsilon > (n - m) / m`. Small factors (0.1, 0.5) hardly change the mean, but the bad
    rows are so close together that median-like rules follow them.

    With `factor="optimized"` the attackers know the rule A and try out 20 factors at every step to
    maximize :math:`\|A(\text{rows}) - \mu\|`. The search expands and contracts; it reads the data
    once if the rule reads only inner products. Against a :class:`Blockwise` rule every tile has a
    separate search.

    Args:
        factor: a number above 0, or "optimized".

    Reference: Xie et al., *Fall of Empires: Breaking Byzantine-tolerant SGD by Inner Product
    Manipulation* (UAI 2019), the attack on the mean, where `factor` is the paper's epsilon.
    "optimized": as in :class:`LittleIsEnough`.

    Example:
        >>> rows, mask = torch.tensor([[1.0], [3.0], [9.0]]), torch.tensor([False, False, True])
        >>> InnerProduct(factor=0.5)(rows, mask)[2]
        tensor([-1.])
    """

    factor: float | Literal["optimized"] = 2.0

    name = "inner-product"
    aim = "The inner product of the direction and the honest mean: it falls, even below zero."
    looks_at_honest = True

    def __post_init__(self) -> None:
        if self.factor != "optimized":
            check_positive("factor", self.factor)

    @property
    def needs(self) -> frozenset[str]:
        return RULE if self.factor == "optimized" else NOTHING

    def _bad_rows(self, context: AttackContext) -> Tensor:
        if self.factor == "optimized":
            # A factor of 0 is at a distance of one mean from the mean.
            found = most_harmful_factor(context, context.mean, start=1.0)
            factor: Tensor | float = found - 1.0
        else:
            factor = self.factor
        return (-factor * context.mean) * context.unit
