from dataclasses import dataclass
from typing import final

from torch import Tensor

from holdfast.checks import check_count, check_positive
from holdfast.threats._attack import Attack
from holdfast.threats._attack_context import AttackContext


@final
@dataclass(frozen=True, kw_only=True)
class Hijack(Attack):
    r"""Against the honest mean, and large where honest rows hold least: to draw the block there.

    All bad rows send :math:`-\mu`, the honest mean reversed, with `size` on the `n_columns` columns of least :math:`\sum_i h_{ij}^2` over the
    honest rows (of equals, the first; all columns, where there are no more).

    Reference: none; made against blocks chosen by norm, see `docs/results/bgmd_under_attack.md`.

    Example:
        >>> rows = torch.tensor([[4.0, 1.0], [2.0, 1.0], [0.0, 0.0]])
        >>> Hijack(n_columns=1, size=50.0)(rows, torch.tensor([False, False, True]))[2]
        tensor([-3., 50.])
    """

    n_columns: int = 200
    size: float = 1e4

    name = "hijack"
    aim = "The share of a block by norm that holds honest gradient; and the distance of the mean from the honest mean."
    looks_at_honest = True

    def __post_init__(self) -> None:
        check_count("n_columns", self.n_columns, at_least=1)
        check_positive("size", self.size)

    def _bad_rows(self, context: AttackContext) -> Tensor:
        bad = -context.mean * context.unit
        lightest = context.honest.square().sum(0).argsort(stable=True)[: self.n_columns]
        bad[lightest] = self.size
        return bad
