from dataclasses import dataclass
from typing import final

from torch import Tensor

from holdfast.threats._attack import Attack
from holdfast.threats._attack_context import AttackContext


@final
@dataclass(frozen=True, kw_only=True)
class SignFlip(Attack):
    r"""Their own gradient, reversed.

    :math:`-g_i`. With a bad share :math:`\psi` the mean keeps its direction but only about :math:`1 - 2\psi` of its length. Reversed
    rows are as long as honest ones, so no rule that looks at norms sees them.

    Reference: Li et al., *RSA: Byzantine-Robust Stochastic Aggregation Methods for Distributed Learning from Heterogeneous Datasets*
    (AAAI 2019), the sign-flipping attack of the experiments, there with a factor.

    Example:
        >>> SignFlip()(torch.tensor([[1.0], [2.0]]), torch.tensor([False, True]))
        tensor([[ 1.],
                [-2.]])
    """

    name = "sign-flip"
    aim = "The length of the mean along the honest mean: training by the mean slows down, to nothing at half of the rows."

    def _bad_rows(self, context: AttackContext) -> Tensor:
        return -context.own
