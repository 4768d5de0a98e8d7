from dataclasses import dataclass
from typing import final

from torch import Tensor

from holdfast.checks import check_fraction, check_positive
from holdfast.threats._attack import Attack
from holdfast.threats._attack_context import AttackContext


@final
@dataclass(frozen=True, kw_only=True)
class HijackAndLie(Attack):
    r"""One row steals the block, the others lie where now nobody looks.

    With the columns in the order of :math:`\sum_i h_{ij}^2` over the honest rows: the first bad row holds `size` on the heaviest columns, twice as many as the
    block has, and zero elsewhere. The others hold the honest mean :math:`\mu`, but -`lie` times it on the lightest half of the
    columns (as far as that is not stolen). Scores in which one row counts without a cap leave that half no chance to be drawn.

    Args:
        fraction: the share of columns in the block that it expects, in (0, 1].
        size: what the thief holds.
        lie: the factor of the others.

    Reference: none; made against blocks chosen by norm, see `docs/results/bgmd_under_attack.md`.

    Example:
        >>> rows = torch.tensor([[4.0, 1.0], [2.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
        >>> HijackAndLie(fraction=0.25, size=50.0, lie=7.0)(rows, torch.tensor([False, False, True, True]))[2:]
        tensor([[50.,  0.],
                [ 3., -7.]])
    """

    fraction: float = 0.1
    size: float = 1e18
    lie: float = 1e3

    name = "hijack-and-lie"
    aim = "The part of the direction outside a block whose scores have no cap: memory and training diverge, by the mean as well."
    looks_at_honest = True

    def __post_init__(self) -> None:
        check_fraction("fraction", self.fraction)
        check_positive("size", self.size)
        check_positive("lie", self.lie)

    def _bad_rows(self, context: AttackContext) -> Tensor:
        order = context.honest.square().sum(0).argsort(stable=True)
        n_stolen = min(context.d, max(1, round(2 * self.fraction * context.d)))
        light, heavy = (
            order[: min(context.d // 2, context.d - n_stolen)],
            order[context.d - n_stolen :],
        )
        bad = (context.mean * context.unit).repeat(context.n_bad, 1)
        bad[1:, light] *= -self.lie
        bad[0] = 0.0
        bad[0, heavy] = self.size
        return bad
