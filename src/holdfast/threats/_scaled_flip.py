from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.checks import check_nonnegative
from holdfast.threats._attack import Attack, attacks
from holdfast.threats._attack_context import AttackContext


@final
@attacks.register
@dataclass(frozen=True, kw_only=True)
class ScaledFlip(Attack):
    r"""The own gradient, reversed and scaled.

    Sends :math:`-c\, g_i`, where c is `factor`. With a bad share :math:`\psi`, the mean is about
    :math:`1 - (1 + c)\psi` times the honest mean, so it is reversed for :math:`\psi > 1 / (1 + c)`.
    A factor of 1 is the *sign flip*: reversed rows are as long as honest ones, so rules that
    compare norms cannot detect them. A factor of 0 sends *zero rows*, like a worker that computed
    nothing.

    Reference: the "scaled bit flip" of the paper's experiments, -100 times the gradient. Factor 1:
    the sign-flipping attack of Li et al., *RSA* (AAAI 2019), experiments.

    Example:
        >>> ScaledFlip()(torch.tensor([[1.0], [2.0]]), torch.tensor([False, True]))
        tensor([[   1.],
                [-200.]])
    """

    factor: float = 100.0

    name = "scaled-flip"
    aim = "Length and sign of the mean: it shrinks (factors 0 and 1) or points uphill (above 1)."

    def __post_init__(self) -> None:
        check_nonnegative("factor", self.factor)

    def _bad_rows(self, context: AttackContext) -> Tensor:
        if self.factor == 0:  # a product would turn infinite entries into NaN
            return torch.zeros_like(context.own)
        return context.own.to(context.dtype).mul_(-self.factor)
