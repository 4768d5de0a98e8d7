from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor

from holdfast.checks import failure
from holdfast.threats._attack import Attack, attacks
from holdfast.threats._attack_context import AttackContext


@final
@attacks.register
@dataclass(frozen=True, kw_only=True)
class NonFinite(Attack):
    """NaN or infinity in every entry ("nan", "inf" or "-inf"), as after an overflow.

    A plain mean becomes NaN or infinite at once. All rules of this library, including the mean,
    leave such rows out as long as at most half of the rows are not finite.

    Example:
        >>> NonFinite(value="-inf")(torch.tensor([[1.0], [2.0]]), torch.tensor([False, True]))
        tensor([[1.],
                [-inf]])
    """

    value: Literal["nan", "inf", "-inf"] = "nan"

    name = "non-finite"
    aim = "Whether a plain mean of the rows is finite."
    saturates = False

    def __post_init__(self) -> None:
        if self.value not in ("nan", "inf", "-inf"):
            raise failure("value", "be 'nan', 'inf' or '-inf'", repr(self.value))

    def _bad_rows(self, context: AttackContext) -> Tensor:
        return torch.full_like(context.own, float(self.value))
