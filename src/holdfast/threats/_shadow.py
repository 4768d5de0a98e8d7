from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.checks import check_fraction
from holdfast.threats._attack import Attack, attacks
from holdfast.threats._attack_context import AttackContext


@final
@attacks.register
@dataclass(frozen=True, kw_only=True)
class Shadow(Attack):
    r"""The honest mean on the columns of a block by norm, a lie below its threshold elsewhere.

    With b bad rows, honest rows :math:`h_i` of mean :math:`\mu`, :math:`s_j = \sum_i h_{ij}^2`, and
    :math:`\tau` the k-th largest of :math:`s_j + b \mu_j^2`, all bad rows hold :math:`\mu_j` where
    :math:`s_j + b \mu_j^2 \ge \tau`, and elsewhere

    .. math:: -\operatorname{sign}(\mu_j) \sqrt{\max(0,\; 0.95\, \tau - s_j) / b}.

    If the call passes a `memory`, which the step will add to every row, the bad rows are such that
    they shadow the rows *with* it.

    Args:
        fraction: the expected share of columns in the block, in (0, 1]; k is this share of d,
            rounded, at least 1.

    Reference: none; made against blocks chosen by norm, see `docs/results/bgmd_under_attack.md`.

    Example:
        >>> rows = torch.tensor([[4.0, 1.0, 0.0], [4.0, 1.0, 0.0], [4.0, 1.0, 0.0]])
        >>> Shadow(fraction=0.34)(rows, torch.tensor([False, False, True]))[2]
        tensor([ 4.0000, -6.6030, -0.0000])
    """

    fraction: float = 0.1

    name = "shadow"
    aim = "The direction outside the heaviest columns, and through it test accuracy."
    looks_at_honest = True

    def __post_init__(self) -> None:
        check_fraction("fraction", self.fraction)

    def _bad_rows(self, context: AttackContext) -> Tensor:
        memory = context.memory
        added = 0.0 if memory is None else memory.detach().to(context.honest) / context.unit
        rows, k = context.honest + added, max(1, round(self.fraction * context.d))
        mean, scores = rows.mean(0), rows.square().sum(0)
        seen = scores + context.n_bad * mean.square()
        threshold = seen.topk(k).values[-1]
        lie = -mean.sign() * ((0.95 * threshold - scores).clamp(min=0) / context.n_bad).sqrt()
        return (torch.where(seen >= threshold, mean, lie) - added) * context.unit
