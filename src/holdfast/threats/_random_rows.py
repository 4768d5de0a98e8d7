from dataclasses import dataclass
from typing import final

from torch import Tensor

from holdfast.checks import check_positive
from holdfast.threats._attack import Attack
from holdfast.threats._attack_context import AttackContext


@final
@dataclass(frozen=True, kw_only=True)
class RandomRows(Attack):
    r"""Gaussian noise, and nothing of a gradient.

    :math:`\sigma \epsilon_i`, each :math:`\epsilon_{ij}` standard normal and drawn anew; :math:`\sigma` is `deviation`.

    Reference: Blanchard et al., *Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent* (NeurIPS 2017), the "Gaussian"
    attackers of the experiments, with a deviation of 200; the same in Xie et al., *Zeno* (ICML 2019).

    Example:
        >>> rows, mask = torch.zeros(3, 2), torch.tensor([False, True, False])
        >>> RandomRows()(rows, mask, generator=torch.Generator().manual_seed(0)).abs().sum(1) > 0
        tensor([False,  True, False])
    """

    deviation: float = 200.0

    name = "random-rows"
    aim = "The distance of the mean from the honest mean, and with it test accuracy."

    def __post_init__(self) -> None:
        check_positive("deviation", self.deviation)

    @property
    def needs_generator(self) -> bool:
        return True

    def _bad_rows(self, context: AttackContext) -> Tensor:
        return self.deviation * context.normal()
