from dataclasses import dataclass
from typing import final

from torch import Tensor

from holdfast.checks import check_positive, failure
from holdfast.threats._attack import Attack, attacks
from holdfast.threats._attack_context import AttackContext


@final
@attacks.register
@dataclass(frozen=True, kw_only=True)
class Hijack(Attack):
    r"""Huge entries on some columns, to draw a block chosen by norm to them.

    Columns are ordered by :math:`\sum_i h_{ij}^2` over the honest rows :math:`h_i` of mean
    :math:`\mu`; equal columns keep their order. Without a `lie`, all bad rows send :math:`-\mu`,
    with `size` on the lightest columns.

    With a `lie` (the strong form), the first bad row holds `size` on the heaviest columns and zero
    elsewhere. The others hold :math:`\mu`, but :math:`-\text{lie} \cdot \mu` on the lightest half
    of the columns, as far as these are not hijacked. If scores have no cap, that half is never
    drawn; hijack at least twice the columns of the block.

    Args:
        columns: number of hijacked columns (at most all), or a share of them if below 1 (at least
            one column).
        size: the value on these columns.
        lie: factor of the strong form.

    Reference: none; made against blocks chosen by norm, see `docs/results/bgmd_under_attack.md`.

    Example:
        >>> rows = torch.tensor([[4.0, 1.0], [2.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
        >>> mask = torch.tensor([False, False, True, True])
        >>> Hijack(columns=1, size=50.0)(rows, mask)[2]
        tensor([-3., 50.])
        >>> Hijack(columns=0.5, size=50.0, lie=7.0)(rows, mask)[2:]
        tensor([[50.,  0.],
                [ 3., -7.]])
    """

    columns: float = 200
    size: float = 1e4
    lie: float | None = None

    name = "hijack"
    aim = "The honest share of a block chosen by norm; in the strong form, all outside the block."
    looks_at_honest = True

    def __post_init__(self) -> None:
        check_positive("columns", self.columns)
        if self.columns > 1 and self.columns % 1:
            raise failure("columns", "be below 1 or a whole number", self.columns)
        check_positive("size", self.size)
        if self.lie is not None:
            check_positive("lie", self.lie)

    def _bad_rows(self, context: AttackContext) -> Tensor:
        lightest_first = context.honest.square().sum(0).argsort(stable=True)
        wanted = round(self.columns * context.d) if self.columns < 1 else int(self.columns)
        n_hijacked = min(context.d, max(1, wanted))
        if self.lie is None:
            bad = -context.mean * context.unit
            bad[lightest_first[:n_hijacked]] = self.size
            return bad
        n_others = context.d - n_hijacked
        bad = (context.mean * context.unit).repeat(context.n_bad, 1)
        bad[1:, lightest_first[: min(context.d // 2, n_others)]] *= -self.lie
        bad[0] = 0.0
        bad[0, lightest_first[n_others:]] = self.size
        return bad
