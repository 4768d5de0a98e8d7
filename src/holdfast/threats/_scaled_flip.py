from dataclasses import dataclass
from typing import final

from torch import Tensor

from holdfast.checks import check_positive
from holdfast.threats._attack import Attack
from holdfast.threats._attack_context import AttackContext


@final
@dataclass(frozen=True, kw_only=True)
class ScaledFlip(Attack):
    r"""Their own gradient, reversed and enlarged.

    :math:`-c\, g_i`, where c is `factor`. The mean turns against the honest one once the bad share is above 1 / (1 + c).

    Reference: the paper's experiments, "scaled bit flip": -100 times the gradient.

    Example:
        >>> ScaledFlip()(torch.tensor([[1.0], [2.0]]), torch.tensor([False, True]))
        tensor([[   1.],
                [-200.]])
    """

    factor: float = 100.0

    name = "scaled-flip"
    aim = "The sign of the mean along the honest mean: training by the mean climbs, and diverges."

    def __post_init__(self) -> None:
        check_positive("factor", self.factor)

    def _bad_rows(self, context: AttackContext) -> Tensor:
        return context.own.to(context.dtype).mul_(-self.factor)
