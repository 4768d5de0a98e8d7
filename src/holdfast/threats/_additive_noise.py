from dataclasses import dataclass
from typing import final

from torch import Tensor

from holdfast.checks import check_positive
from holdfast.threats._attack import Attack
from holdfast.threats._attack_context import AttackContext


@final
@dataclass(frozen=True, kw_only=True)
class AdditiveNoise(Attack):
    r"""Their gradient with Gaussian noise on it.

    :math:`g_i + \sigma \epsilon_i`, each :math:`\epsilon_{ij}` standard normal and drawn anew; :math:`\sigma` is `deviation`.

    Reference: the paper's experiments, "additive" gradient attack: noise N(0, 100), which is a deviation of 10.

    Example:
        >>> rows, mask = torch.zeros(3, 2), torch.tensor([False, True, False])
        >>> AdditiveNoise()(rows, mask, generator=torch.Generator().manual_seed(0)).abs().sum(1) > 0
        tensor([False,  True, False])
    """

    deviation: float = 10.0

    name = "additive-noise"
    aim = "The distance of the mean from the honest mean, and with it test accuracy."

    def __post_init__(self) -> None:
        check_positive("deviation", self.deviation)

    @property
    def needs_generator(self) -> bool:
        return True

    def _bad_rows(self, context: AttackContext) -> Tensor:
        return context.normal().mul_(self.deviation).add_(context.own)
