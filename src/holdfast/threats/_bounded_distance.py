from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor

from holdfast.checks import failure
from holdfast.threats._attack import Attack, attacks
from holdfast.threats._attack_context import AttackContext, of_length_one


@final
@attacks.register
@dataclass(frozen=True, kw_only=True)
class BoundedDistance(Attack):
    r"""Min-Max and Min-Sum: as far from the honest mean as distances between honest rows allow.

    All bad rows send :math:`\mu - \gamma p`, where :math:`\mu` is the mean of the honest rows
    :math:`g_i` and p the `direction`. With :math:`v_i = g_i - \mu`, :math:`\gamma` is the largest
    number such that, for the `bound`

    - "max": :math:`\max_i \|\mu - \gamma p - g_i\| \le R = \max_{ij} \|g_i - g_j\|`, which is

      .. math:: \gamma = \min_i
          \frac{-v_i \cdot p + \sqrt{(v_i \cdot p)^2 + \|p\|^2 (R^2 - \|v_i\|^2)}}{\|p\|^2};

    - "sum": :math:`\sum_i \|\mu - \gamma p - g_i\|^2 \le \max_i \sum_j \|g_i - g_j\|^2`, where the
      :math:`v_i` cancel in both sums and leave :math:`\gamma = \max_i \|v_i\| \,/\, \|p\|`.

    Where p is zero, so is :math:`\gamma`.

    Args:
        bound: "max" (Min-Max) or "sum" (Min-Sum).
        direction: p is the unit vector :math:`\mu / \|\mu\|` ("unit"), the signs of :math:`\mu`
            ("sign") or the standard deviations of the columns ("std").

    Reference: Shejwalkar and Houmansadr, *Manipulating the Byzantine* (NDSS 2021), "Min-Max" and
    "Min-Sum". Deviation: the exact optimum instead of a search.

    Example:
        >>> rows, mask = torch.tensor([[1.0], [3.0], [9.0]]), torch.tensor([False, False, True])
        >>> BoundedDistance()(rows, mask)[2]
        tensor([1.])
    """

    bound: Literal["max", "sum"] = "max"
    direction: Literal["unit", "sign", "std"] = "unit"

    name = "bounded-distance"
    aim = "The bias of the direction against the honest mean, from among the honest rows."
    looks_at_honest = True

    def __post_init__(self) -> None:
        if self.bound not in ("max", "sum"):
            raise failure("bound", "be 'max' or 'sum'", repr(self.bound))
        if self.direction not in ("unit", "sign", "std"):
            raise failure("direction", "be 'unit', 'sign' or 'std'", repr(self.direction))

    def _bad_rows(self, context: AttackContext) -> Tensor:
        if self.direction == "unit":
            p = of_length_one(context.mean)
        else:
            p = context.mean.sign() if self.direction == "sign" else context.spread
        largest_step = _within_max if self.bound == "max" else _within_sum
        gamma = largest_step(context.deviations, p)
        return (context.mean - gamma * p) * context.unit


def _within_max(deviations: Tensor, p: Tensor) -> float:
    square = float(p.square().sum())
    if square == 0:
        return 0.0
    # In float64: R^2 - |v_i|^2 cancels for the rows that matter.
    products = (deviations @ deviations.T).cpu().double()
    own, along = products.diagonal(), (deviations @ p).cpu().double()
    largest = (own[:, None] + own[None, :] - 2 * products).max()
    root = (along.square() + square * (largest - own).clamp(min=0)).sqrt()
    return float(((root - along) / square).min().clamp(min=0))


def _within_sum(deviations: Tensor, p: Tensor) -> float:
    farthest = torch.linalg.vector_norm(deviations, dim=1).max()
    length = torch.linalg.vector_norm(p)
    return float(farthest / length) if bool(length > 0) else 0.0
