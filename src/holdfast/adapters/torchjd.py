"""Rules as TorchJD's `Aggregator` and `Weighting`."""

from typing import final

import torch
from torch import Tensor
from torchjd.aggregation import Aggregator, Weighting

from holdfast.adapters._bare_rule import bare_rule
from holdfast.aggregators import Aggregator as Rule
from holdfast.checks import failure

__all__ = ["RuleAggregator", "RuleWeighting"]


@final
class RuleAggregator(Aggregator):
    """Any rule as an aggregator of Jacobians [m, n], for `jac_to_grad` of `torchjd.autojac`.

    Each of the m objectives is a row. Objectives whose gradient is not finite get no weight.

    Args:
        rule: the rule or its name, such as `"krum(n_bad=2)"`.
        generator: source of random numbers, for rules that draw some.

    Example:
        >>> aggregator = RuleAggregator("coordinate-median")
        >>> aggregator(torch.tensor([[1.0, 5.0], [2.0, 6.0], [300.0, -700.0]]))
        tensor([2., 5.])
    """

    def __init__(
        self, rule: Rule | str = "radius-filter", *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.rule, self._arguments = bare_rule(rule, generator)

    def forward(self, matrix: Tensor, /) -> Tensor:
        vector: Tensor = self.rule(matrix, **self._arguments)
        return vector

    def __repr__(self) -> str:
        return f"RuleAggregator({self.rule})"

    def __str__(self) -> str:
        return str(self.rule)


@final
class RuleWeighting(Weighting[Tensor]):
    """A rule in Gram space as a weighting of Gramians [m, m], for `torchjd.autogram`.

    `GramianWeightedAggregator(RuleWeighting(rule))` is the same rule for `torchjd.autojac`, without
    the concatenated Jacobian. A float32 Gramian has lost the differences of gradients that are
    close to each other, and a Gramian with NaN raises an error, because it does not show whose it
    is. :class:`RuleAggregator`, which gets the gradients, has neither limit.

    Args:
        rule: a rule that reads inner products or lengths only, or its name.
        generator: source of random numbers, for rules that draw some.

    Example:
        >>> jacobian = torch.tensor([[1.0], [1.1], [1.3], [2.0], [-80.0]])
        >>> RuleWeighting("krum(n_bad=1)")(jacobian @ jacobian.T)
        tensor([0., 1., 0., 0., 0.])
    """

    def __init__(
        self, rule: Rule | str = "radius-filter", *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.rule, self._arguments = bare_rule(rule, generator)
        if self.rule.reads_columns:
            requirement = "read inner products or lengths only (use RuleAggregator)"
            raise failure("rule", requirement, self.rule)

    def forward(self, stat: Tensor, /) -> Tensor:
        return self.rule.weights_from_gram(stat, **self._arguments).to(stat)

    def __repr__(self) -> str:
        return f"RuleWeighting({self.rule})"
