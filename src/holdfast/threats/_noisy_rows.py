from dataclasses import dataclass
from typing import final

from torch import Tensor

from holdfast.checks import check_flag, check_positive
from holdfast.threats._attack import GENERATOR, Attack, attacks
from holdfast.threats._attack_context import AttackContext


@final
@attacks.register
@dataclass(frozen=True, kw_only=True)
class NoisyRows(Attack):
    r"""Gaussian noise, added to the own gradient or in its place.

    Sends :math:`g_i + \sigma \epsilon_i`, or :math:`\sigma \epsilon_i` with `replace`, where
    :math:`\sigma` is `deviation` and all :math:`\epsilon_{ij}` are independent standard normal.

    Reference: the "additive" gradient attack of the paper's experiments, noise N(0, 100). With
    `replace` and deviation 200: the "Gaussian" attackers of Blanchard et al., *Machine Learning
    with Adversaries* (NeurIPS 2017), experiments, and of Xie et al., *Zeno* (ICML 2019).

    Example:
        >>> rows, mask = torch.zeros(3, 2), torch.tensor([False, True, False])
        >>> NoisyRows()(rows, mask, generator=torch.Generator().manual_seed(0)).abs().sum(1) > 0
        tensor([False,  True, False])
    """

    deviation: float = 10.0
    replace: bool = False

    name = "noisy-rows"
    aim = "The distance of the mean from the honest mean, and through it test accuracy."
    needs = GENERATOR

    def __post_init__(self) -> None:
        check_positive("deviation", self.deviation)
        check_flag("replace", self.replace)

    def _bad_rows(self, context: AttackContext) -> Tensor:
        noise = context.normal().mul_(self.deviation)
        return noise if self.replace else noise.add_(context.own)
