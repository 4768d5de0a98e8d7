from dataclasses import dataclass
from typing import final

from torch import Tensor

from holdfast.threats._attack import Attack
from holdfast.threats._attack_context import AttackContext
from holdfast.threats._perturbation import (
    Direction,
    check_direction,
    deviations_and_products,
    perturbation,
)


@final
@dataclass(frozen=True, kw_only=True)
class MinMax(Attack):
    r"""As far against the honest mean as no honest row is from another.

    All bad rows send :math:`\mu - \gamma p` with the largest :math:`\gamma` such that
    :math:`\max_i \|\mu - \gamma p - g_i\| \le R = \max_{ij} \|g_i - g_j\|`, over honest rows with mean :math:`\mu`; p is :math:`\mu / \|\mu\|`
    ("unit"), the signs of :math:`\mu` ("sign") or the standard deviations of the columns ("std"). With :math:`v_i = g_i - \mu` each i is a
    quadratic in :math:`\gamma`, so

    .. math:: \gamma = \min_i \frac{-v_i \cdot p + \sqrt{(v_i \cdot p)^2 + \|p\|^2 (R^2 - \|v_i\|^2)}}{\|p\|^2},

    and 0 where p is zero.

    Reference: Shejwalkar and Houmansadr, *Manipulating the Byzantine: Optimizing Model Poisoning Attacks and Defenses for Federated
    Learning* (NDSS 2021), the attack "Min-Max". Deviation: the exact optimum instead of a search.

    Example:
        >>> MinMax()(torch.tensor([[1.0], [3.0], [9.0]]), torch.tensor([False, False, True]))[2]
        tensor([1.])
    """

    direction: Direction = "unit"

    name = "min-max"
    aim = "The bias of the direction against the honest mean, from within the spread of the honest rows."
    looks_at_honest = True

    def __post_init__(self) -> None:
        check_direction(self.direction)

    def _bad_rows(self, context: AttackContext) -> Tensor:
        p = perturbation(context, self.direction)
        deviations, products = deviations_and_products(context)
        own = products.diagonal()
        largest = (own[:, None] + own[None, :] - 2 * products).max()
        along, square = (deviations @ p).cpu().double(), float(p.square().sum())
        if square == 0:
            return context.mean * context.unit
        root = (along.square() + square * (largest - own).clamp(min=0)).sqrt()
        gamma = float(((root - along) / square).min().clamp(min=0))
        return (context.mean - gamma * p) * context.unit
