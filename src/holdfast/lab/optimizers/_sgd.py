from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

import torch
from torch import nn

from holdfast.checks import check_flag, check_share, failure
from holdfast.lab.optimizers._optimizer_spec import OptimizerSpec, check_rates


@final
@dataclass(frozen=True, kw_only=True)
class Sgd(OptimizerSpec):
    """Gradient descent, with momentum if wanted; torch's `SGD`.

    Args:
        lr: learning rate.
        momentum: in [0, 1).
        nesterov: Nesterov's form of momentum.
        weight_decay: L2 penalty.

    Example:
        >>> Sgd(momentum=0.9).build([nn.Parameter(torch.zeros(2))]).defaults["lr"]
        0.01
    """

    lr: float = 0.01
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    name = "sgd"

    def __post_init__(self) -> None:
        check_rates(self.lr, self.weight_decay)
        check_share("momentum", self.momentum, below=1.0)
        check_flag("nesterov", self.nesterov)
        if self.nesterov and not self.momentum:
            raise failure("momentum", "be above 0 for Nesterov's form", self.momentum)

    @property
    def is_plain(self) -> bool:
        return self.momentum == 0.0

    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.SGD:
        return torch.optim.SGD(
            parameters,
            lr=self.lr,
            momentum=self.momentum,
            nesterov=self.nesterov,
            weight_decay=self.weight_decay,
        )
