from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

import torch
from torch import nn

from holdfast.lab.optimizers._optimizer_spec import OptimizerSpec, check_rates


@final
@dataclass(frozen=True, kw_only=True)
class Adam(OptimizerSpec):
    """Torch's `Adam`, with its usual moments.

    Args:
        lr: learning rate.
        weight_decay: L2 penalty.

    Example:
        >>> Adam().build([nn.Parameter(torch.zeros(2))]).defaults["lr"]
        0.001
    """

    lr: float = 0.001
    weight_decay: float = 0.0

    name = "adam"
    is_plain = False

    def __post_init__(self) -> None:
        check_rates(self.lr, self.weight_decay)

    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Adam:
        return torch.optim.Adam(parameters, lr=self.lr, weight_decay=self.weight_decay)
